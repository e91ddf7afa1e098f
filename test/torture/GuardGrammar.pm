=pod

=head1 NAME

GuardGrammar - random writes on the tables of GuardModel

=head1 SYNOPSIS

  my $statement = GuardGrammar::statement($model);

=head1 DESCRIPTION

Looks into a model, to choose rows that are there and tokens that are near what counts:
fresh, equal, older, none.  With $model->{calm} mostly what a good holder would present.
All choices come from rand().

=cut

package GuardGrammar;

use strict;
use warnings;

use Exporter 'import';
use GuardModel qw(%tables @tables);

our @EXPORT_OK = qw(@issued @resources one_of chance);

# Tokens of the first ones are issued by acquire(); those of the others come from elsewhere.
our @issued = qw(g:1 g:2);
our @resources = (@issued, qw(g:3 g:4 g:5));

# the tables to write to
our @pool = @tables;

sub one_of { return $_[ rand @_ ]; }
sub chance { return rand() < $_[0]; }

# A token: fresh, equal, older, none.
sub token
{
	my ($model, $name, $row) = @_;
	my $mark = $model->resource($name)->{mark};
	my $presented = $model->{presented}{$name};
	my $kind = rand;

	return $presented ? $presented->{token} : $mark if $model->{calm} && $mark && chance(0.8);

	return $presented->{token} + ($kind < 0.58 ? 0 : $kind < 0.61 ? 1 : -1) if $presented && $kind < 0.63;
	return $row->{tok} + one_of(-1, 0, 0, 1, 1, 2) if $row && defined $row->{tok} && $kind < 0.75;
	return $mark + ($kind < 0.82 ? 0 : $kind < 0.92 ? 1 + int rand 3 : $kind < 0.96 ? -1 : -int rand 5) if $kind < 0.98;
	return one_of(0, -1, 1);
}

sub check
{
	my ($model, $name) = @_;
	my $token = token($model, $name);

	return [ $name, $token < 1 ? 1 : $token, chance(0.06) ? one_of('a', 'b') : undef, chance(0.05) ? 1 : 0 ];
}

# Mostly a resource that the transaction stands on.
sub group
{
	my ($model) = @_;
	my @presented = sort keys %{ $model->{presented} };

	return undef if chance(0.01);
	return @presented && chance(0.85) ? one_of(@presented) =~ s/g://r : 1 + int rand 5;
}

sub name_of
{
	my ($table, $row) = @_;

	return $table->{name} // 'g:' . ($row->{ $table->{column} } // 1);
}

sub row
{
	my ($model, $table, $id, $region) = @_;
	my $row = { id => $id, grp => group($model), val => int rand 10, region => $region,
		boss => $table->{boss} && chance(0.95) ? 1 + int rand(chance(0.1) ? 4 : 3) : undef };

	$row->{tok} = chance(0.2) ? undef : chance(0.03) ? 0 : token($model, name_of($table, $row), $model->{rows}{ $table->{table} }{"$id:$region"});
	return $row;
}

sub region
{
	my ($table) = @_;

	return $table->{parts} ? one_of('a', 'b') : '';
}

sub ids
{
	my ($max) = @_;
	my %ids = map { 1 + int rand 4 => 1 } 1 .. 1 + int rand $max;

	return sort keys %ids;
}

# Assignments for an UPDATE; "source" where there is one.
sub assignments
{
	my ($model, $table, $ids, $source) = @_;
	my $set = { val => $source ? 'source' : '+1' };
	my ($row) = $model->rows_where($table, $ids);
	my $kind = rand;

	if ($table->{column} && chance(0.25))
	{
		my $column = $table->{column};
		$set->{$column} = $source && chance(0.5) ? 'source' : $column eq 'boss' ? 1 + int rand 3 : group($model);
	}
	$set->{tok} = $source && chance(0.6) ? 'source' : $kind < 0.1 ? '+0' : $kind < 0.15 ? '+1' : $kind < 0.2 ? undef :
	  token($model, name_of($table, { %{ $row // {} }, map { $_ => $set->{$_} } grep { ($set->{$_} // '') ne 'source' } keys %$set }), $row)
	  if $table->{token} && chance(0.6);
	$set->{boss} = 1 + int rand 3 if $table->{boss} && chance(0.1);
	return $set;
}

sub inside { my ($model) = @_; return chance(0.2) ? check($model, one_of(@resources)) : undef; }

sub insert
{
	my ($model, $table) = @_;
	my $s = { kind => 'insert', table => $table, omit => chance(0.1), check => inside($model) };

	$s->{rows} = [ map { row($model, $table, $_, region($table)) } ids(3) ];
	$s->{rows}[0]{region} = 'z' if $table->{parts} && @{ $s->{rows} } == 1 && chance(0.03);
	$_->{tok} = $table->{default} ? 0 : undef foreach $s->{omit} ? @{ $s->{rows} } : ();
	my @new = grep { !$model->{rows}{ $table->{table} }{"$_->{id}:$_->{region}"} } @{ $s->{rows} };
	if (chance(0.25)) { $s->{rows} = \@new if @new && chance(0.7); }
	else
	{
		$s->{conflict} = chance(0.25) ? { nothing => 1 } :
		  { set => assignments($model, $table, [ map { $_->{id} } @{ $s->{rows} } ], 1), chance(0.2) ? (below => int rand 10) : () };
	}
	return $s;
}

sub copy
{
	my ($model, $table) = @_;
	my $s = insert($model, $table);
	my @new = grep { !$model->{rows}{ $table->{table} }{"$_->{id}:$_->{region}"} } @{ $s->{rows} };

	# mostly where there is room
	$s->{rows} = \@new if @new && chance(0.8);
	return { kind => 'copy', table => $table, rows => [ map { { %$_, region => $_->{region} eq 'z' ? 'a' : $_->{region} } } @{ $s->{rows} } ] };
}

sub update
{
	my ($model, $table) = @_;
	my $s = { kind => 'update', table => $table, ids => [ ids(3) ], check => inside($model), region => chance(0.5) ? region($table) : undef };

	$s->{set} = assignments($model, $table, $s->{ids});
	$s->{set}{region} = chance(0.03) ? 'z' : region($table) if $table->{parts} && chance(0.4);
	return $s;
}

sub source
{
	my ($model, $table, $region, @ids) = @_;

	return [ map { row($model, $table, $_, $region) } @ids ];
}

sub update_from
{
	my ($model, $table) = @_;
	my $s = { kind => 'update_from', table => $table, check => inside($model), region => region($table) };
	my @ids = ids(3);

	# sometimes a row is hit twice
	@ids = sort @ids, $ids[0] if chance(0.3);
	$s->{source} = source($model, $table, $s->{region}, @ids);
	$s->{set} = assignments($model, $table, \@ids, 1);
	$s->{set}{region} = region($table) if $table->{parts} && chance(0.3);
	return $s;
}

sub remove
{
	my ($model, $table) = @_;

	return { kind => 'delete', table => $table, ids => [ ids(2) ], check => inside($model), region => chance(0.5) ? region($table) : undef };
}

sub merge
{
	my ($model, $table) = @_;
	my @ids = ids(3);
	my $region = region($table);
	my $s = { kind => 'merge', table => $table, source => source($model, $table, $region, @ids), actions => [] };

	foreach my $i (1 .. 1 + int rand 3)
	{
		my $do = one_of('update', 'update', 'update', 'delete', 'nothing');
		push @{ $s->{actions} }, { matched => 1, do => $do, chance(0.7) ? (below => int rand 10) : (),
			$do eq 'update' ? (set => assignments($model, $table, \@ids, 1)) : () };
		$s->{actions}[-1]{set}{region} = chance(0.5) ? 'source' : one_of('a', 'b') if $do eq 'update' && $table->{parts} && chance(0.3);
		last unless defined $s->{actions}[-1]{below};
	}
	push @{ $s->{actions} }, { matched => 0, do => 'insert', omit => chance(0.1), chance(0.3) ? (below => int rand 10) : () } if chance(0.7);
	push @{ $s->{actions} }, { matched => 1, do => 'update', set => assignments($model, $table, \@ids, 1) }
	  unless grep { $_->{do} ne 'nothing' } @{ $s->{actions} };
	# an action after one without a condition can never be reached, and is an error
	my %closed;
	$s->{actions} = [ grep { my $open = !$closed{ $_->{matched} }; $closed{ $_->{matched} } ||= !defined $_->{below}; $open } @{ $s->{actions} } ];
	$s->{actions}[-1] = { matched => 1, do => 'delete' } unless grep { $_->{do} ne 'nothing' } @{ $s->{actions} };
	# in an inner join it depends on the plan whether it is called
	$s->{check} = inside($model) if grep { $_->{do} eq 'insert' } @{ $s->{actions} };
	return $s;
}

sub with
{
	my ($model) = @_;
	my $first = one_of(@pool);
	my $second = one_of(grep { $_ ne $first } @pool);
	my @parts = map { my $make = one_of(\&insert, \&update, \&update_from, \&remove); $make->($model, $tables{$_}) } $first, $second;

	return { kind => 'with', parts => \@parts };
}

sub boss
{
	my ($model, $table) = @_;
	my $kind = rand;
	my $s = { kind => 'boss', table => $table, id => 1 + int rand 3, check => inside($model),
		do => $kind < 0.5 ? 'insert' : $kind < 0.73 ? 'delete' : $kind < 0.96 ? 'update' : 'truncate' };

	$s->{to} = 1 + int rand 4 if $s->{do} eq 'update';
	delete $s->{id} if $s->{do} eq 'truncate';
	delete $s->{check} if $s->{do} =~ /insert|truncate/;
	return $s;
}

sub truncate
{
	my ($model, $table) = @_;

	# the others are always refused
	$table = $tables{ one_of(grep { $tables{$_}{name} } @tables) } if chance(0.7);
	return { kind => 'truncate', table => $table };
}

sub present { my ($model) = @_; return { kind => 'check', check => check($model, one_of(@resources)) }; }

sub lease
{
	my ($model) = @_;
	my $name = one_of(@issued);
	my $resource = $model->resource($name);
	my $kind = rand;
	my $token = $resource->{token} + one_of(0, 0, 0, 0, -1, 1);
	my %s = (name => $name, token => $token < 1 ? 1 : $token, holder => one_of('a', 'b'));

	return { %s, kind => 'acquire' } if $kind < 0.45;
	return { %s, kind => 'release' } if $kind < 0.65;
	return { %s, kind => 'extend' } if $kind < 0.75;
	return { %s, kind => 'hand_over' } if $kind < 0.87;
	return { %s, kind => 'break_lease' } if $kind < 0.93;
	# where nothing is held, and never lower
	$name = one_of(@resources[2 .. 4]);
	return { kind => 'raise_mark', name => $name, token => $model->resource($name)->{mark} + one_of(1, 1, 2) };
}

sub statement
{
	my ($model) = @_;
	my $table = $tables{ one_of(@pool) };
	my $kind = rand;

	return insert($model, $table) if $kind < 0.24;
	return update($model, $table) if $kind < 0.42;
	return update_from($model, $table) if $kind < 0.50;
	return merge($model, $table) if $kind < 0.64;
	return remove($model, $table) if $kind < 0.70;
	return copy($model, $table) if $kind < 0.76;
	return with($model) if $kind < 0.82;
	return boss($model, $tables{ one_of('child', 'child_row', 'child_both') }) if $kind < 0.88;
	return GuardGrammar::truncate($model, $table) if $kind < 0.89;
	return present($model) if $kind < 0.95;
	return lease($model);
}

1;

=pod

=head1 NAME

GuardModel - what pg_fence has to do with a write, as a model in a few hundred lines

=head1 SYNOPSIS

  my $model = GuardModel->new;
  my ($state, $count, $output) = $model->run($statement);

=head1 DESCRIPTION

Holds tables, resources and one transaction, and says for each statement with which SQLSTATE
it ends, how many rows it changes, and what is stored then.  Written from the contract, not
from the C code; one session, so nothing ever waits.

A statement is a hash: kind and what belongs to it, see the run_* functions.  A row is
never changed in place, so that a copy of the model can share it.

=cut

package GuardModel;

use strict;
use warnings;

use Exporter 'import';
our @EXPORT_OK = qw(%tables @tables);

# The guarded tables.  name: resource, or the column that names it ("g:1").
# marks: as for fence.protect(); default: the token column has the default 0; parts: it is
# partitioned by region; boss: a foreign key that cascades.
our %tables = (
	plain        => { marks => 'resource', name => 'g:3' },
	cols         => { marks => 'resource', column => 'grp' },
	leased       => { marks => 'resource', column => 'grp', lease => 1 },
	rowed        => { marks => 'row', column => 'grp' },
	rowed_plain  => { marks => 'row', name => 'g:4', default => 1 },
	rowed_leased => { marks => 'row', column => 'grp', lease => 1 },
	both_cols    => { marks => 'both', column => 'grp', default => 1 },
	both_plain   => { marks => 'both', name => 'g:1' },
	part         => { marks => 'resource', column => 'grp', parts => 1 },
	part_row     => { marks => 'row', column => 'grp', parts => 1 },
	part_both    => { marks => 'both', column => 'grp', parts => 1 },
	child        => { marks => 'resource', name => 'g:5', boss => 1 },
	child_row    => { marks => 'row', column => 'boss', boss => 1 },
	child_both   => { marks => 'both', column => 'grp', boss => 1 },
);
our @tables = sort keys %tables;

foreach my $name (@tables)
{
	my $table = $tables{$name};

	$table->{table} = $name;
	$table->{token} = $table->{marks} ne 'resource';
	# are its tokens judged against the resource?
	$table->{presents} = $table->{marks} ne 'row' || $table->{lease};
	# judged per statement, not per row
	$table->{statement} = !$table->{token} && $table->{name} && !$table->{boss};
}

sub new
{
	my ($class) = @_;

	return bless {
		rows => { map { $_ => {} } @tables },	# by table and "id:region"
		boss => { map { $_ => {} } grep { $tables{$_}{boss} } @tables },	# ids, by table
		resources => {},
		presented => {},
		locks => {},		# resources whose mark this transaction has raised
		saved => [],		# savepoints: name, model
		xid => 0,		# has the transaction written?  undef: cannot say
		queue => [],		# AFTER triggers
	}, $class;
}

sub copy
{
	my ($self) = @_;
	my %copy = %$self;

	foreach my $what ('rows', 'boss')
	{
		$copy{$what} = { map { $_ => { %{ $self->{$what}{$_} } } } keys %{ $self->{$what} } };
	}
	$copy{$_} = { %{ $self->{$_} } } foreach 'resources', 'presented', 'locks';
	$copy{saved} = [ @{ $self->{saved} } ];
	$copy{queue} = [];
	return bless \%copy;
}

# ---------------------------------------------------------------- tokens

sub refuse { die "$_[0]\n"; }

sub resource
{
	my ($self, $name) = @_;

	return $self->{resources}{$name} // { name => $name, token => 0, mark => 0, unknown => 1 };
}

sub set_resource
{
	my ($self, $name, %change) = @_;

	$self->{resources}{$name} = { %{ $self->resource($name) }, unknown => 0, %change };
	return;
}

# From now on the transaction stands on this token.
sub remember
{
	my ($self, $name, $token, $holder, $lease) = @_;

	$lease ||= $self->{presented}{$name} && $self->{presented}{$name}{lease};
	$self->{presented}{$name} = { token => $token, holder => $holder, lease => $lease };
	return;
}

sub higher_level { return $_[0]{iso} ne 'READ COMMITTED'; }

sub judge_holder
{
	my ($holder, $known) = @_;

	refuse('PF003') if defined $holder && defined $known && $holder ne $known;
	return;
}

sub judge_lease
{
	my ($self, $name, $token) = @_;
	my $resource = $self->resource($name);

	refuse('PF005') unless $resource->{token} == $token && $resource->{live};
	return;
}

sub present
{
	my ($self, $name, $token, $holder, $lease) = @_;
	my $before = $self->{presented}{$name};
	my $resource = $self->resource($name);
	my $mark = $resource->{mark};

	if ($before && $before->{token} == $token)
	{
		judge_holder($holder, $before->{holder});
		$self->judge_lease($name, $token) if $lease && !$before->{lease};
		# a holder that is named now is known from now on
		$self->remember($name, $token, $before->{holder} // $holder, $lease);
		return;
	}
	refuse('PF001') if $before && $token < $before->{token};
	refuse('PF001') if $token < $mark;
	if ($token == $mark)
	{
		# raised by something else than a presentation of this transaction
		refuse('PF001') if $before;
		judge_holder($holder, $resource->{mark_holder});
		$self->judge_lease($name, $token) if $lease;
		refuse('25001') if $self->higher_level && $self->{locks}{$name};
		$self->remember($name, $token, $resource->{mark_holder} // $holder, $lease);
		return;
	}
	# never issued
	refuse('PF004') if $resource->{token};
	refuse('PF005') if $lease;
	refuse('PF001') if $before && $before->{token} != $mark;
	$self->set_resource($name, mark => $token, mark_holder => $holder);
	$self->{locks}{$name} = 1;
	$self->{xid} = 1;
	$self->remember($name, $token, $holder, 0);
	return;
}

# At COMMIT and PREPARE.
sub judge_at_commit
{
	my ($self) = @_;

	foreach my $name (sort keys %{ $self->{presented} })
	{
		my $presented = $self->{presented}{$name};
		my $resource = $self->resource($name);

		refuse('PF001') if $presented->{token} < $resource->{mark};
		refuse('PF005') if $presented->{lease} && !($resource->{token} == $presented->{token}
			&& ($resource->{live} || $resource->{released_now}));
	}
	return;
}

# ---------------------------------------------------------------- rows

sub name_of
{
	my ($table, $row) = @_;

	return $table->{name} if $table->{name};
	return 'g:' . ($row->{ $table->{column} } // refuse('22004'));
}

sub context_token
{
	my ($self, $table, $name) = @_;
	my $presented = $self->{presented}{$name} or return 0;

	$self->present($name, $presented->{token}, undef, $table->{lease});
	return $presented->{token};
}

sub require_token
{
	my ($self, $table, $name) = @_;

	return $self->context_token($table, $name) || refuse('PF002');
}

# The token of the row: what the statement sets, else what is presented.
sub row_token
{
	my ($self, $table, $name, $set) = @_;

	return $self->require_token($table, $name) unless defined $set;
	refuse('22023') if $set < 1;
	$self->present($name, $set, undef, $table->{lease})
	  if $table->{presents} && $self->context_token($table, $name) != $set;
	return $set;
}

# Row marks: no old row to judge by, but the resource may have a mark.
sub judge_new_row
{
	my ($self, $name, $token) = @_;

	refuse('PF001') if $token < $self->resource($name)->{mark};
	return;
}

sub judge_leaving
{
	my ($self, $table, $old) = @_;

	refuse('PF001') if $self->require_token($table, name_of($table, $old)) < $old->{tok};
	return;
}

# BEFORE ROW: the row as it is to be written.
sub before_insert
{
	my ($self, $table, $row) = @_;

	return $row unless $table->{token};
	my $name = name_of($table, $row);
	my $set = $row->{tok};
	undef $set if $table->{default} && defined $set && $set == 0;
	my $token = $self->row_token($table, $name, $set);

	$self->judge_new_row($name, $token) unless $table->{presents};
	return { %$row, tok => $token };
}

# sets: does the statement set the token column?  In a MERGE only a change proves it.
sub before_update
{
	my ($self, $table, $old, $new, $sets, $merge) = @_;

	return $new unless $table->{token};
	my ($old_name, $name) = (name_of($table, $old), name_of($table, $new));
	my $set = $sets ? $new->{tok} : undef;

	$self->judge_leaving($table, $old) if $old_name ne $name;
	undef $set if $merge && defined $set && $set == $old->{tok};
	my $token = $self->row_token($table, $name, $set);
	refuse('PF001') if $token < $old->{tok};
	$self->judge_new_row($name, $token) unless $table->{presents} || $old_name eq $name;
	return { %$new, tok => $token };
}

# AFTER ROW, of what was written.
sub judge_written
{
	my ($self, $table, $old, $new) = @_;
	my $name = $new ? name_of($table, $new) : undef;

	if (!$table->{token})
	{
		$self->require_token($table, $name) if $new;
		return unless $old;
		my $old_name = name_of($table, $old);
		$self->require_token($table, $old_name) unless $new && $old_name eq $name;
		return;
	}
	return unless $new;
	my $same = $old && name_of($table, $old) eq $name;
	$self->require_token($table, name_of($table, $old)) if $old && !$same;
	if ($table->{presents}) { $self->require_token($table, $name); }
	elsif (!$same) { $self->judge_new_row($name, $new->{tok}); }
	return;
}

sub written
{
	my ($self, $table, $old, $new) = @_;

	$self->{xid} = 1;
	# the check of a foreign key comes before the guard: its name sorts lower
	push @{ $self->{queue} }, [ 'reference', $table, $new ]
	  if $table->{boss} && $new && !($old && ($old->{boss} // '') eq ($new->{boss} // ''));
	push @{ $self->{queue} }, [ 'row', $table, $old, $new ] unless $table->{statement};
	return;
}

sub key { return "$_[0]{id}:$_[0]{region}"; }

sub store
{
	my ($self, $table, $row) = @_;
	my $rows = $self->{rows}{ $table->{table} };

	refuse('23505') if $rows->{ key($row) };
	$rows->{ key($row) } = $row;
	return;
}

sub insert_row
{
	my ($self, $table, $row, $conflict) = @_;

	refuse('23514') if $table->{parts} && $row->{region} !~ /^[ab]$/;
	$row = $self->before_insert($table, $row);
	if ($conflict && (my $old = $self->{rows}{ $table->{table} }{ key($row) }))
	{
		return 0 if $conflict->{nothing};
		return 0 if defined $conflict->{below} && !($old->{val} < $conflict->{below});
		return $self->update_row($table, $old, changed($old, $conflict->{set}, $row), exists $conflict->{set}{tok});
	}
	$self->store($table, $row);
	$self->written($table, undef, $row);
	return 1;
}

sub update_row
{
	my ($self, $table, $old, $new, $sets, $merge) = @_;
	my $rows = $self->{rows}{ $table->{table} };

	$new = $self->before_update($table, $old, $new, $sets, $merge);
	if ($old->{region} ne $new->{region})
	{
		# moved to another partition: DELETE and INSERT
		delete $rows->{ key($old) };
		$self->written($table, $old, undef) unless $table->{token};
		return $self->insert_row($table, $new);
	}
	# the key stays
	$rows->{ key($new) } = $new;
	$self->written($table, $old, $new);
	return 1;
}

sub delete_row
{
	my ($self, $table, $old) = @_;

	$self->judge_leaving($table, $old) if $table->{token};
	delete $self->{rows}{ $table->{table} }{ key($old) };
	$self->written($table, $old, undef) unless $table->{token};
	$self->{xid} = 1;
	return 1;
}

# A row with these assignments.  The value is a number or undef, or a word: what the row
# has plus a number ("+1"), or a column of the source ("source").
sub changed
{
	my ($old, $set, $source) = @_;
	my %new = %$old;

	foreach my $column (keys %$set)
	{
		my $value = $set->{$column};
		if (defined $value && $value eq 'source') { $value = $source->{$column}; }
		elsif (defined $value && $value =~ /^\+(\d+)$/) { $value = defined $old->{$column} ? $old->{$column} + $1 : undef; }
		$new{$column} = $value;
	}
	return \%new;
}

# In the order of a scan: partitions, then ids.
sub rows_where
{
	my ($self, $table, $ids, $region) = @_;
	my $rows = $self->{rows}{ $table->{table} };
	my %wanted = map { $_ => 1 } @$ids;

	return sort { $a->{region} cmp $b->{region} || $a->{id} <=> $b->{id} }
	  grep { $wanted{ $_->{id} } && (!defined $region || $_->{region} eq $region) } values %$rows;
}

# fence.check() in the statement itself: once for each row that gets that far.
sub check_inside
{
	my ($self, $check) = @_;

	$self->present(@$check) if $check;
	return;
}

# ---------------------------------------------------------------- statements

sub run_insert
{
	my ($self, $s) = @_;
	my $count = 0;

	foreach my $row (@{ $s->{rows} })
	{
		$self->check_inside($s->{check});
		$count += $self->insert_row($s->{table}, $row, $s->{conflict});
	}
	push @{ $self->{queue} }, [ 'statement', $s->{table} ] if $s->{table}{statement};
	return $count;
}

sub run_copy { return run_insert(@_); }

sub run_update
{
	my ($self, $s) = @_;
	my $count = 0;

	foreach my $row ($self->rows_where($s->{table}, $s->{ids}, $s->{region}))
	{
		$self->check_inside($s->{check});
		$count += $self->update_row($s->{table}, $row, changed($row, $s->{set}), exists $s->{set}{tok});
	}
	push @{ $self->{queue} }, [ 'statement', $s->{table} ] if $s->{table}{statement};
	return $count;
}

# UPDATE ... FROM: only the first match of a row counts.
sub run_update_from
{
	my ($self, $s) = @_;
	my %done;

	foreach my $source (@{ $s->{source} })
	{
		my ($row) = $self->rows_where($s->{table}, [ $source->{id} ], $s->{region}) or next;

		$self->check_inside($s->{check});
		$self->update_row($s->{table}, $row, changed($row, $s->{set}, $source), exists $s->{set}{tok})
		  unless $done{ $source->{id} }++;
	}
	push @{ $self->{queue} }, [ 'statement', $s->{table} ] if $s->{table}{statement};
	return scalar keys %done;
}

sub run_delete
{
	my ($self, $s) = @_;
	my $count = 0;

	foreach my $row ($self->rows_where($s->{table}, $s->{ids}, $s->{region}))
	{
		$self->check_inside($s->{check});
		$count += $self->delete_row($s->{table}, $row);
	}
	push @{ $self->{queue} }, [ 'statement', $s->{table} ] if $s->{table}{statement};
	return $count;
}

sub run_merge
{
	my ($self, $s) = @_;
	my $table = $s->{table};
	my $count = 0;
	# the columns of all actions together
	my $sets = grep { $_->{do} eq 'update' && exists $_->{set}{tok} } @{ $s->{actions} };

	foreach my $source (@{ $s->{source} })
	{
		$self->check_inside($s->{check});
		my $old = $self->{rows}{ $table->{table} }{ key($source) };
		my ($action) = grep { $_->{matched} == ($old ? 1 : 0) && (!defined $_->{below} || $source->{val} < $_->{below}) } @{ $s->{actions} };

		next if !$action || $action->{do} eq 'nothing';
		if ($action->{do} eq 'insert') { $count += $self->insert_row($table, { %$source, $action->{omit} ? (tok => $table->{default} ? 0 : undef) : () }); }
		elsif ($action->{do} eq 'delete') { $count += $self->delete_row($table, $old); }
		else { $count += $self->update_row($table, $old, changed($old, $action->{set}, $source), $sets, 1); }
	}
	push @{ $self->{queue} }, [ 'statement', $table ] if $table->{statement};
	return $count;
}

# Writes in one statement, that of the last first.
sub run_with
{
	my ($self, $s) = @_;

	foreach my $part (reverse @{ $s->{parts} })
	{
		my $run = "run_$part->{kind}";
		$self->$run($part);
	}
	return 1;
}

sub run_truncate
{
	my ($self, $s) = @_;
	my $table = $s->{table};

	refuse('PF002') if $table->{column};
	my $token = $self->require_token($table, $table->{name});
	refuse('PF001') if $table->{token} && grep { $_->{tok} > $token } values %{ $self->{rows}{ $table->{table} } };
	$self->{rows}{ $table->{table} } = {};
	$self->{xid} = 1;
	return 0;
}

# The table that is referenced has no guard.
sub run_boss
{
	my ($self, $s) = @_;
	my $table = $s->{table};
	my $bosses = $self->{boss}{ $table->{table} };
	my $children = $self->{rows}{ $table->{table} };

	if ($s->{do} eq 'insert')
	{
		$self->{xid} = 1;
		refuse('23505') if $bosses->{ $s->{id} };
		$bosses->{ $s->{id} } = 1;
		return 1;
	}
	if ($s->{do} eq 'truncate')
	{
		$self->run_truncate($s);
		%$bosses = ();
		return 0;
	}
	return 0 unless $bosses->{ $s->{id} };
	$self->check_inside($s->{check});
	$self->{xid} = 1;
	return 1 if $s->{do} eq 'update' && $s->{to} == $s->{id};
	refuse('23505') if $s->{do} eq 'update' && $bosses->{ $s->{to} };
	delete $bosses->{ $s->{id} };
	$bosses->{ $s->{to} } = 1 if $s->{do} eq 'update';
	foreach my $row (sort { $a->{id} <=> $b->{id} } grep { defined $_->{boss} && $_->{boss} == $s->{id} } values %$children)
	{
		if ($s->{do} eq 'update') { $self->update_row($table, $row, { %$row, boss => $s->{to} }); }
		else { $self->delete_row($table, $row); }
	}
	return 1;
}

sub run_check
{
	my ($self, $s) = @_;

	$self->present(@{ $s->{check} });
	return (undef, 't');
}

# 25001: a snapshot is older than the acquisition
sub own_transaction
{
	my ($self) = @_;

	return unless $self->higher_level;
	refuse('25001') if %{ $self->{presented} } || $self->{xid};
	refuse('unsure') unless defined $self->{xid};
	return;
}

sub grant
{
	my ($self, $name, $holder) = @_;
	my $resource = $self->resource($name);
	my $before = $self->{presented}{$name};

	refuse('PF001') if $before && $before->{token} != $resource->{mark};
	my $token = ($resource->{token} > $resource->{mark} ? $resource->{token} : $resource->{mark}) + 1;
	$self->set_resource($name, token => $token, mark => $token, mark_holder => $holder, holder => $holder, live => 1, released_now => 0);
	$self->{locks}{$name} = 1;
	$self->{xid} = 1;
	$self->remember($name, $token, $holder, 0) if $before;
	return (undef, "t $token ");
}

sub lost_reason
{
	my ($resource, $token) = @_;

	return 'unknown' if !defined $resource->{holder} || $token > $resource->{token};
	return 'superseded' if $token < $resource->{token} || $token < $resource->{mark};
	return $resource->{live} ? undef : 'released';
}

sub run_acquire
{
	my ($self, $s) = @_;

	$self->own_transaction;
	return (undef, 'f  held') if $self->resource($s->{name})->{live};
	return $self->grant($s->{name}, $s->{holder});
}

sub run_hand_over
{
	my ($self, $s) = @_;

	$self->own_transaction;
	my $reason = lost_reason($self->resource($s->{name}), $s->{token});
	return (undef, "f  $reason") if $reason;
	return $self->grant($s->{name}, $s->{holder});
}

sub run_extend
{
	my ($self, $s) = @_;
	my $reason = lost_reason($self->resource($s->{name}), $s->{token});

	$self->{xid} = 1 unless $reason;
	return (undef, $reason ? "f $reason" : 't ');
}

sub run_release
{
	my ($self, $s) = @_;

	return (undef, 'f') if lost_reason($self->resource($s->{name}), $s->{token});
	$self->set_resource($s->{name}, live => 0, released_now => 1);
	$self->{xid} = 1;
	return (undef, 't');
}

sub run_break_lease
{
	my ($self, $s) = @_;
	my $resource = $self->resource($s->{name});

	return (undef, 'f') unless $resource->{live};
	my $mark = ($resource->{token} > $resource->{mark} ? $resource->{token} : $resource->{mark}) + 1;
	$self->set_resource($s->{name}, mark => $mark, mark_holder => undef, live => 0);
	$self->{locks}{ $s->{name} } = 1;
	$self->{xid} = 1;
	return (undef, 't');
}

sub run_raise_mark
{
	my ($self, $s) = @_;
	my $mark = $self->resource($s->{name})->{mark};

	refuse('22023') if $s->{token} < $mark;
	if ($s->{token} > $mark)
	{
		$self->set_resource($s->{name}, mark => $s->{token}, mark_holder => undef);
		$self->{locks}{ $s->{name} } = 1;
		$self->{xid} = 1;
	}
	return (undef, $s->{token});
}

# ---------------------------------------------------------------- transactions

sub run_queue
{
	my ($self) = @_;

	while (my $event = shift @{ $self->{queue} })
	{
		my ($what, $table, @rows) = @$event;

		if ($what eq 'row') { $self->judge_written($table, @rows); }
		elsif ($what eq 'statement') { $self->require_token($table, $table->{name}); }
		elsif (defined $rows[0]{boss})
		{
			refuse('23503') unless $self->{boss}{ $table->{table} }{ $rows[0]{boss} };
		}
	}
	return;
}

sub end
{
	my ($self) = @_;

	$self->{presented} = {};
	$self->{locks} = {};
	$self->{saved} = [];
	delete @$self{ 'iso', 'before', 'aborted' };
	foreach my $name (keys %{ $self->{resources} })
	{
		$self->set_resource($name, released_now => 0) if $self->{resources}{$name}{released_now};
	}
	return;
}

sub replace
{
	my ($self, $other) = @_;

	%$self = %$other;
	return;
}

# Runs one statement: ($sqlstate, $count, $output).  $count and $output may be undefined.
sub run
{
	my ($self, $s) = @_;
	my $control = "do_$s->{kind}";

	return $self->$control($s) if $self->can($control);
	return ('25P02') if $self->{aborted};

	my $try = $self->copy;
	my $run = "run_$s->{kind}";
	$try->{xid} = 0 unless $self->{iso};
	$try->{iso} //= 'READ COMMITTED';
	my ($count, $output);
	my $good = eval {
		($count, $output) = $try->$run($s);
		$try->run_queue;
		$try->judge_at_commit unless $self->{iso};
		1;
	};
	if (!$good)
	{
		die $@ unless $@ =~ /^(\w{5,6})\n/;
		my $state = $1;
		$self->{aborted} = 1 if $self->{iso};
		# what it had begun to write may have given it an xid
		undef $self->{xid} if $self->{iso} && !$self->{xid};
		return ($state);
	}
	undef $try->{xid} if !$try->{xid} && $s->{kind} !~ /check|acquire|extend|release|break|raise|hand/;
	$try->end unless $self->{iso};
	$self->replace($try);
	return ('00000', $count, $output);
}

sub do_begin
{
	my ($self, $s) = @_;

	$self->{before} = $self->copy;
	$self->{iso} = $s->{iso};
	$self->{xid} = 0;
	return ('00000');
}

sub roll_back
{
	my ($self) = @_;
	my $before = $self->{before};

	$self->replace($before) if $before;
	return;
}

sub do_rollback { $_[0]->roll_back; return ('00000'); }

# also of a prepared transaction
sub do_commit
{
	my ($self) = @_;

	if ($self->{aborted} || !eval { $self->judge_at_commit; 1 })
	{
		my $state = $self->{aborted} ? '00000' : $@ =~ s/\n//r;
		$self->roll_back;
		return ($state);
	}
	$self->end;
	return ('00000');
}

sub do_prepare
{
	my ($self, $s) = @_;

	return $self->do_commit unless $s->{rollback};
	if (!$self->{aborted} && !eval { $self->judge_at_commit; 1 })
	{
		my $state = $@ =~ s/\n//r;
		$self->roll_back;
		return ($state);
	}
	$self->roll_back;
	return ('00000');
}

sub do_savepoint
{
	my ($self, $s) = @_;

	return ('25P02') if $self->{aborted};
	push @{ $self->{saved} }, [ $s->{name}, $self->copy ];
	return ('00000');
}

sub do_rollback_to
{
	my ($self, $s) = @_;
	my ($xid, $saved) = @$self{ 'xid', 'saved' };

	pop @$saved while @$saved && $saved->[-1][0] ne $s->{name};
	if (!@$saved)
	{
		$self->{aborted} = 1;
		return ('3B001');
	}
	$self->replace($saved->[-1][1]->copy);
	# the transaction keeps its xid
	@$self{ 'xid', 'saved' } = ($xid, $saved);
	delete $self->{aborted};
	return ('00000');
}

sub do_release_savepoint
{
	my ($self, $s) = @_;

	return ('25P02') if $self->{aborted};
	foreach my $i (reverse 0 .. $#{ $self->{saved} })
	{
		next if $self->{saved}[$i][0] ne $s->{name};
		splice @{ $self->{saved} }, $i;
		return ('00000');
	}
	$self->{aborted} = 1;
	return ('3B001');
}

# All that is stored, as the test's query gives it.
sub state
{
	my ($self) = @_;
	my @all;

	foreach my $table (@tables)
	{
		push @all, map { join ':', $table, map { $_ // '' } @$_{qw(id region grp tok val boss)} } values %{ $self->{rows}{$table} };
		push @all, map { "boss_$table:$_" } keys %{ $self->{boss}{$table} // {} };
	}
	push @all, map { join ':', "=$_->{name}", $_->{token}, $_->{mark}, $_->{live} ? 't' : 'f', $_->{mark_holder} // '' } values %{ $self->{resources} };
	return join ' ', sort @all;
}

1;

# Digests of requests: equal for equal jsonb values and only for them, whatever the encoding
# of the database, and the same in every version (idempotency case 4, field case E01).

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = fence_node('canonical', init => [ extra => [ '--no-locale', '--encoding=UTF8' ] ]);

# Requests with text beyond ASCII are made of code points that LATIN1 has, too.
my @databases = qw(postgres latin1 ascii);
sql($node, q{CREATE DATABASE latin1 ENCODING 'LATIN1' TEMPLATE template0});
sql($node, q{CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0});
my %session = map { $_ => session($node, dbname => $_) } @databases;
$session{$_}->does('CREATE EXTENSION pg_fence') foreach qw(latin1 ascii);

# Digests are stored and compared by later versions: as long as they begin with 01, these must
# not change.  The list comes from a program that shares no code with ours.
my %digests = (
	q{null} =>
	  '01594e519ae499312b29433b7dd8a97ff068defcba9755b6d5d00e84c524d67b06',
	q{true} =>
	  '01e3b98a4da31a127d4bde6e43033f66ba274cab0eb7eb1c70ec41402bf6273dd8',
	q{false} =>
	  '01252f10c83610ebca1a059c0bae8255eba2f95be4d1d7bcfa89d7248a82d9f111',
	q{0} =>
	  '0101cacfc673c5c9d4a3b3cd4843262a860e2f305e091aaea4ed1e54fa73e15598',
	q{-1.50} =>
	  '014d8493bcf5620b2f557395f1a98317439c3977c8665096a1a6be931f00562227',
	q{12345678901234567890.0123456789} =>
	  '010bd6798142bbb3e7c2a763f18f7198b02d0b38087095170f07c0a4bb2ab1154e',
	q{1e131071} =>
	  '01ad8c8ac50d02c9c6fb4d07a31888d23e625f9080ccbea58fe5131d6bc35bdfcc',
	q{1e-16383} =>
	  '012d698b26f349be03dcb9d83bc553fda9b72d0b31eb794c57c0b1f69a4f84804e',
	q{""} =>
	  '019d1ad79533ff47fcea9a3a6250cc0077f5a6ed8fefe56f443f966521fcffe6a7',
	q{"A"} =>
	  '01b13e1af785a94b009ad4ac0e023a69a330e90083da5b5e8e75ec0a272063210d',
	q{[]} =>
	  '018de8cd75798aab2cec56bcc45f463021a916a8accad171eecdf06718ef09eefb',
	q{{}} =>
	  '01fc4a3d5af293d9a8fb363eb5443024d212a80b7432b286bf24d4628eac27a57c',
	q{[null, [true, {"b": [], "aa": {"": 0}}], "x", -7]} =>
	  '0189c7e6a5b94f539da232f8917ecfadf7c9ce8ef28493be7452bbb8d627fd5d85',
	q{"gr\u00fcn"} =>
	  '011605377c19a568bdf62fcf5a3d85c2f35d66a1a9d6318d937165029de34f1ef6',
	q{{"\u00fc": 1, "ue": 2, "u": {"\u00e9": "\u00df"}}} =>
	  '01fbbe040867483d0945f017da1b634f768aa3c6ba2ff9736627bc373e7b7febf0');

foreach my $db (@databases)
{
	foreach my $json (sort keys %digests)
	{
		# no way to write a code point where nobody knows the encoding
		next if $db eq 'ascii' && $json =~ /\\u/;
		gives($session{$db}, qq{
			BEGIN;
			SELECT fresh, fence.complete('k') FROM fence.claim('k', request => '$json') \\gset
			SELECT encode(request, 'hex') FROM fence.idempotency_key;
			ROLLBACK},
			$digests{$json}, "$db: $json");
	}
}

# Random requests, of few kinds and short, so that many are equal or nearly so.
my $seed = time;
srand($seed);
note "seed $seed";

sub choose { return $_[ rand @_ ]; }

sub spell_number
{
	my ($sign, $digits, $exponent) = @_;
	my $zeros = $digits eq '0' ? 0 : int(rand(3));

	$digits .= '0' x $zeros;
	$exponent -= $zeros;
	if ($exponent < 0 && $exponent > -9 && rand() < 0.5)
	{
		$digits = '0' x (1 - $exponent) . $digits;
		substr($digits, $exponent, 0) = '.';
		$digits =~ s/^0+(?=\d)//;
		$exponent = 0;
	}
	return $sign . $digits . ($exponent != 0 || rand() < 0.2 ? choose('e', 'E') . $exponent : '');
}

sub spell_text
{
	my ($text, $escapes) = @_;

	return join '', map { ord() < 32 || ord() > 126 || ($escapes && rand() < 0.3) ? sprintf('\u%04x', ord) : $_ } split //, $text;
}

# A value as a tree, and one of the ways to write it.
sub random_value
{
	my ($depth, $alphabet) = @_;
	my $kind = int(rand($depth > 0 ? 7 : 4));

	return [ 'word', choose(qw(null true false)) ] if $kind == 0;
	return [ 'number', choose('', '-'), choose(0, 1, 12, 9007199254740993), choose(0, 0, 1, 4, -1, -4, 300) ] if $kind == 1;
	return [ 'text', join('', map { choose(@$alphabet) } 1 .. rand(3)) ] if $kind <= 3;
	return [ 'array', map { random_value($depth - 1, $alphabet) } 1 .. rand(4) ] if $kind <= 4;
	my %members = map { random_value(0, $alphabet)->[1] => random_value($depth - 1, $alphabet) } 1 .. rand(4);
	return [ 'object', %members ];
}

sub spell
{
	my ($value, $escapes) = @_;
	my ($kind, @parts) = @$value;

	return $parts[0] if $kind eq 'word';
	return spell_number(@parts) if $kind eq 'number';
	return '"' . spell_text($parts[0], $escapes) . '"' if $kind eq 'text';
	return '[' . join(choose(',', ' , '), map { spell($_, $escapes) } @parts) . ']' if $kind eq 'array';
	my %members = @parts;
	my @members = map { '"' . spell_text($_, $escapes) . '":' . spell($members{$_}, $escapes) } sort { rand() <=> 0.5 } keys %members;
	# what comes first of a key that comes twice does not count
	unshift @members, '"' . spell_text(choose(keys %members), $escapes) . '":[[]]' if @members > 0 && rand() < 0.2;
	return '{' . join(choose(',', ', '), @members) . '}';
}

# The same tree with one place changed
sub mutate
{
	my ($value, $alphabet) = @_;
	my ($kind, @parts) = @$value;

	return random_value(1, $alphabet) if rand() < 0.3 || $kind =~ /word|number|text/ || @parts == 0;
	my $place = $kind eq 'object' ? 2 * int(rand(@parts / 2)) + 1 : int(rand(@parts));
	my @copy = @parts;
	if (rand() < 0.2)
	{
		splice(@copy, $kind eq 'object' ? $place - 1 : $place, $kind eq 'object' ? 2 : 1);
		return [ $kind, @copy ];
	}
	$copy[$place] = mutate($copy[$place], $alphabet);
	return [ $kind, @copy ];
}

my $setup = q{
	CREATE TABLE pair (n int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a jsonb, b jsonb);
	CREATE FUNCTION repeated(n int, request jsonb) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		claimed record;
	BEGIN
		SELECT * INTO claimed FROM fence.claim('pair ' || n, 'pairs', request);
		RETURN CASE WHEN claimed.fresh THEN 'fresh' ELSE claimed.response::text END;
	EXCEPTION
		WHEN OTHERS THEN
			RETURN SQLSTATE;
	END
	$$};

foreach my $db (@databases)
{
	my $session = $session{$db};
	my $escapes = $db ne 'ascii';
	my @alphabet = $escapes ? ('a', 'b', '1', ' ', "\xe9", "\xff", "\x01") : qw(a b 1 .);
	my $pairs = $FenceTest::long ? 50_000 : 2_000;
	my $values = '';

	for (1 .. $pairs)
	{
		my $value = random_value(3, \@alphabet);
		my $other = rand() < 0.5 ? $value : mutate($value, \@alphabet);
		$values .= spell($value, $escapes) . "\t" . spell($other, $escapes) . "\n";
	}
	$values =~ s/\\/\\\\/g;
	my $file = write_file("pairs_$db", $values);

	$session->does($setup);
	$session->does("\\copy pair (a, b) FROM '$file'");
	$session->does(q{
		BEGIN;
		SELECT count(claim) FROM pair CROSS JOIN LATERAL fence.claim('pair ' || n, 'pairs', a);
		SELECT count(fence.complete('pair ' || n, to_jsonb(n), 'pairs')) FROM pair;
		COMMIT;
		CREATE TABLE outcome AS SELECT n, a, b, repeated(n, b) AS outcome FROM pair});
	gives($session, q{
		SELECT n, a, b, outcome FROM outcome
		WHERE outcome <> CASE WHEN a = b THEN n::text ELSE 'PF101' END ORDER BY n LIMIT 20},
		'', "$db: of $pairs pairs, those that = finds equal repeat a request, and no others");
	my ($equal, $different) = split /\|/,
		$session->does('SELECT count(*) FILTER (WHERE a = b), count(*) FILTER (WHERE a <> b) FROM pair');
	cmp_ok($equal, '>', $pairs / 4, "... $equal are equal");
	cmp_ok($different, '>', $pairs / 8, "... and $different are not");
	gives($session, qq{SELECT count(*) > $pairs / 100 FROM pair WHERE a = b AND a::text <> b::text}, 't', '... many are equal, and written otherwise');
}

# A dump from LATIN1 that is restored into UTF-8: the same keys are known, and the same
# requests are repeated.
$session{latin1}->does(q{SELECT fence.once(U&'gr\00fcn', U&'\00e9')});
my $dump = PostgreSQL::Test::Utils::tempdir() . '/latin1.dump';
sql($node, q{CREATE DATABASE utf8 ENCODING 'UTF8' TEMPLATE template0});
command_ok([ 'pg_dump', '-Fc', '-f', $dump, '-d', $node->connstr('latin1') ], 'pg_dump of a LATIN1 database');
command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('utf8'), $dump ], '... restored into a UTF-8 one');
my $copy = session($node, dbname => 'utf8');
gives($copy, q{
	SELECT n, a, b FROM (SELECT n, a, b, repeated(n, b) AS outcome FROM pair OFFSET 0) p
	WHERE outcome <> CASE WHEN a = b THEN n::text ELSE 'PF101' END ORDER BY n LIMIT 20},
	'', 'the same requests are repeated there');
gives($copy, q{SELECT count(*) > 100 FROM pair WHERE octet_length(a::text) > length(a::text)}, 't', '... many of them not in ASCII');
gives($copy, q{SELECT fence.once(U&'gr\00fcn', U&'\00e9')}, 'f', '... and keys are known');
$copy->quit;

# Text of a single-byte encoding that Unicode does not have: refused, and nothing is claimed.
sql($node, q{CREATE DATABASE win1252 ENCODING 'WIN1252' TEMPLATE template0});
my $win = session($node, dbname => 'win1252');
$win->does('CREATE EXTENSION pg_fence');
refuses($win, q{SELECT fence.claim('k', request => to_jsonb(E'\x81'::text))}, '22P05', 'text that Unicode does not have');
refuses($win, q{SELECT fence.claim(E'\x81')}, '22P05', '... also in a key');
gives($win, q{
	SELECT fresh, fence.complete('k') FROM fence.claim('k', request => to_jsonb(E'\x80'::text)) \gset first_
	SELECT :'first_fresh', fresh FROM fence.claim('k', request => to_jsonb(E'\x80'::text))},
	't|f', '... but has claimed nothing');
$win->quit;
$_->quit foreach values %session;

finish($node);

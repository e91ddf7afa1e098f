# The query file for prometheus-postgres-exporter, with the real exporter, as a role with
# pg_monitor and nothing else; and the dashboard, whose queries a real Prometheus answers.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use HTTP::Tiny;
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $root = "$FindBin::RealBin/../..";
my $queries = "$root/monitoring/postgres_exporter.yml";
my $node = fence_node('exporter', conf => fence_shared() . "pg_fence.max_resources = 10\n");
my $port = PostgreSQL::Test::Cluster::get_free_port();
my $prometheus_port = PostgreSQL::Test::Cluster::get_free_port();

# Something of everything
sql($node, q{
	CREATE ROLE watcher LOGIN;
	GRANT pg_monitor TO watcher;
	CREATE TABLE stock (w text NOT NULL, qty int);
	INSERT INTO stock VALUES ('a', 1);
	SELECT fence.protect('stock', 'st:{w}');
	CREATE TABLE seen (w text NOT NULL);
	INSERT INTO seen VALUES ('a');
	SELECT fence.protect('seen', 'seen', mode => 'observe');
	CREATE TABLE part (w text NOT NULL) PARTITION BY LIST (w);
	CREATE TABLE part_a PARTITION OF part FOR VALUES IN ('a');
	SELECT fence.protect('part', 'part:{w}')});
acquire($node, 'st:a', 'a', '1 hour');
sql($node, q{SELECT fence.acquire('st:a', 'b', '1 s', '300 ms'); SELECT fence.release('st:a', 1)});
acquire($node, 'st:a', 'b', '1 hour');
sqlstate($node, q{SELECT fence.check('st:a', 1)}) foreach 1 .. 2;
refuses($node, q{UPDATE stock SET qty = 2}, 'PF002', 'a write without a token');
sql($node, q{SET pg_fence.bypass = on; UPDATE stock SET qty = 3});
sql($node, q{SELECT fence.acquire('short', 'a', '1 ms'); SELECT pg_sleep(0.01); SELECT fence.acquire('short', 'b', '1 hour')});

# metric{labels} => value
sub scrape
{
	my $response = HTTP::Tiny->new(timeout => 10)->get("http://127.0.0.1:$port/metrics");
	my %value;

	return unless $response->{success};
	foreach my $line (grep { /^pg_fence/ } split /\n/, $response->{content})
	{
		my ($name, $labels, $value) = $line =~ /^(\w+)\{(.*)\} (\S+)$/ or die "not understood: $line";
		my @labels = grep { !/^(server="[^"]*:\d+"|datname="postgres")$/ } $labels =~ /(\w+="[^"]*")/g;
		$value{ @labels ? "$name " . join(' ', sort @labels) : $name } = $value;
	}
	return \%value;
}

my $output = '';
local $ENV{DATA_SOURCE_NAME} = sprintf 'host=%s port=%d user=watcher dbname=postgres sslmode=disable', $node->host, $node->port;
my $exporter = IPC::Run::start(
	[ 'prometheus-postgres-exporter', "--web.listen-address=127.0.0.1:$port", "--extend.query-path=$queries",
		'--disable-default-metrics', '--disable-settings-metrics' ],
	'>&', \$output);
my ($value, $end) = (undef, time + 30);
until ($value && %$value)
{
	die "the exporter gives no metrics: $output" if time > $end || !$exporter->pumpable;
	sleep 0.1;
	$exporter->pump_nb;
	$value = scrape();
}
note map { "$_ = $value->{$_}\n" } sort keys %$value;

my %expected = (
	'pg_fence_resource_attempts_total resource="st:a"' => 3,
	'pg_fence_resource_acquired_total resource="st:a"' => 2,
	'pg_fence_resource_contended_total resource="st:a"' => 1,
	'pg_fence_resource_releases_total resource="st:a"' => 1,
	'pg_fence_resource_checks_total resource="st:a"' => 2,
	'pg_fence_resource_expirations_total resource="short"' => 1,
	'pg_fence_resource_takeovers_total resource="short"' => 1,
	'pg_fence_rejections_total resource="st:a" sqlstate="PF001"' => 2,
	'pg_fence_rejections_total resource="st:a" sqlstate="PF002"' => 1,
	'pg_fence_rejections_total resource="st:a" sqlstate="PF004"' => 0,
	'pg_fence_rejections_total resource="short" sqlstate="other"' => 0,
	'pg_fence_table_rejections_total target="stock"' => 1,
	'pg_fence_table_observed_total target="seen"' => 0,
	'pg_fence_table_rejections_total target="part_a"' => 0,
	'pg_fence_table_bypassed_total target="stock"' => 1,
	'pg_fence_lease_duration_seconds_count kind="held"' => 2,
	'pg_fence_lease_duration_seconds_count kind="waited"' => 1,
	'pg_fence_lease_duration_seconds_bucket kind="held" le="+Inf"' => 2,
	'pg_fence_lease_duration_seconds_bucket kind="waited" le="0.01"' => 0,
	'pg_fence_lease_duration_seconds_bucket kind="waited" le="86400"' => 1,
	'pg_fence_leases_resources state="held"' => 2,
	'pg_fence_leases_resources state="free"' => 0);
foreach my $metric (sort keys %expected)
{
	is($value->{$metric}, $expected{$metric}, $metric);
}
cmp_ok($value->{'pg_fence_resource_wait_seconds_total resource="st:a"'}, '>=', 0.1, 'waiting time in seconds');
cmp_ok($value->{'pg_fence_leases_oldest_seconds state="held"'}, '>', 0, 'age in seconds');
unlike($output, qr/level=error|pq: /i, 'the exporter has nothing to complain about');
note $output;

# An hour later, so to say: rates can be taken
sqlstate($node, q{SELECT fence.check('st:a', 1)});
is(scrape()->{'pg_fence_rejections_total resource="st:a" sqlstate="PF001"'}, 3, 'the next scrape');

# The dashboard shows metrics that are there, and all of them
my $yaml = slurp_file($queries);
my %known;
my $namespace;
foreach my $line (split /\n/, $yaml)
{
	$namespace = $1 if $line =~ /^(pg_fence_\w+):$/;
	next unless $line =~ /^    - (\w+): \{usage: (\w+)/ && $2 ne 'LABEL';
	$known{"${namespace}_$1$_"} = 1 foreach $2 eq 'HISTOGRAM' ? qw(_bucket _sum _count) : '';
}
my $dashboard = decode_json(slurp_file("$root/monitoring/grafana.json"));
my @panels = grep { $_->{targets} } @{ $dashboard->{panels} };
cmp_ok(scalar @panels, '>=', 6, 'the dashboard has panels');
my %shown;
foreach my $panel (@panels)
{
	ok($panel->{title} =~ /\?$/ && $panel->{description}, "panel \"$panel->{title}\" asks a question and says what the answer means");
	foreach my $target (@{ $panel->{targets} })
	{
		my @unknown = grep { !$known{$_} } $target->{expr} =~ /\b(pg_fence_\w+)/g;
		is("@unknown", '', "... $target->{expr}");
		$shown{$_} = 1 foreach $target->{expr} =~ /\b(pg_fence_\w+)/g;
	}
}
my @missing = grep { !$shown{$_} && !/_(sum|count)$/ } sort keys %known;
is("@missing", '', 'no metric is left out');

# A Prometheus that has seen some load answers each of its queries with numbers
my $prometheus_conf = write_file('prometheus.yml', <<"END");
global: {scrape_interval: 1s}
scrape_configs:
  - job_name: postgres
    static_configs: [{targets: ['127.0.0.1:$port']}]
END
my $prometheus_log = '';
my $prometheus = IPC::Run::start(
	[ 'prometheus', "--config.file=$prometheus_conf", '--storage.tsdb.path=' . PostgreSQL::Test::Utils::tempdir,
		"--web.listen-address=127.0.0.1:$prometheus_port" ],
	'>&', \$prometheus_log);

# What its interface answers, undef as long as it does not
sub prometheus
{
	my ($path, %arguments) = @_;
	my $http = HTTP::Tiny->new(timeout => 10);
	my $response = $http->get("http://127.0.0.1:$prometheus_port/api/v1/$path?" . $http->www_form_urlencode(\%arguments));

	return undef if $response->{status} == 599 || $response->{status} == 503;
	my $answer = decode_json($response->{content});
	die "$arguments{query}: $answer->{error}" if $answer->{status} ne 'success';
	return $answer->{data};
}

# The dashboard's variables, as Grafana fills them in
sub fill_in
{
	my ($expression) = @_;
	my %variable = (datname => '(postgres|other)', resource => '.*', __rate_interval => '10s');

	$expression =~ s/\$(\w+)/$variable{$1} or die "unknown variable: $1"/ge;
	return $expression;
}

sub answered
{
	my ($target) = @_;
	my $data = prometheus('query', query => fill_in($target->{expr}));
	my @labels = ($target->{legendFormat} // '') =~ /\{\{(\w+)\}\}/g;

	foreach my $series ($data ? @{ $data->{result} } : ())
	{
		return 1 if $series->{value}[1] =~ /^[\d.e+-]+$/ && !grep { !exists $series->{metric}{$_} } @labels;
	}
	return 0;
}

# Redis servers that are not there
sql($node, qq{
	CREATE SERVER $_ FOREIGN DATA WRAPPER fence_redis OPTIONS (socket '/nonexistent', breaker_ms '0');
	CREATE USER MAPPING FOR CURRENT_USER SERVER $_}) foreach 'gone', 'gone_2';
my @pending = map { @{ $_->{targets} } } @panels;
my $load = session($node);
$end = time + 60;
while (@pending)
{
	die "Prometheus has ended: $prometheus_log" unless $prometheus->pumpable;
	$exporter->pump_nb;
	$prometheus->pump_nb;
	sqlstate($load, $_) foreach q{SELECT fence.release('load', token) FROM fence.acquire('load', 'a') WHERE acquired},
	  q{SELECT fence.acquire('st:a', 'x', '1 s', '10 ms')}, q{SELECT fence.check('st:a', 1)},
	  q{SELECT fence.check('far', 1, 'b', 'gone')}, q{SELECT fence.check('far', 1, 'b', 'gone_2')},
	  q{UPDATE stock SET qty = 2}, q{UPDATE seen SET w = 'b'}, q{SET pg_fence.bypass = on; UPDATE stock SET qty = 3; RESET pg_fence.bypass};
	@pending = grep { !answered($_) } @pending;
	last if time > $end;
	sleep 0.5;
}
is(join("\n", map { $_->{expr} } @pending), '', 'Prometheus answers each query of the dashboard');
foreach my $variable (grep { $_->{type} eq 'query' } @{ $dashboard->{templating}{list} })
{
	my ($series, $label) = fill_in($variable->{query}) =~ /^label_values\((.*), (\w+)\)$/;

	cmp_ok(scalar @{ prometheus("label/$label/values", 'match[]' => $series) }, '>', 0, "... and has values for its variable \"$variable->{name}\"");
}
$load->quit;
$prometheus->signal('TERM');
$prometheus->finish;

# One label does not come twice, which the exporter takes for an error: of what was dropped, of
# what gave way to others, and of a table with a second guard, made by hand
sql($node, q{CREATE TRIGGER zz AFTER INSERT ON seen FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=s:{w}', 'marks=resource')});
sql($node, 'DROP SERVER gone CASCADE; DROP SERVER gone_2 CASCADE');
sql($node, q{SELECT fence.check(n::text, 1) FROM generate_series(1, 20) n});
sql($node, q{SELECT fence.check('(others)', 1)}) foreach 1 .. 5;
$value = scrape() // {};
is(scalar(grep { /^pg_fence_redis/ } keys %$value), 0, 'servers that were dropped');
is($value->{'pg_fence_table_bypassed_total target="seen"'}, 0, 'a table with two guards');
is($value->{'pg_fence_resource_checks_total resource="(others)"'}, 5, 'a resource with an odd name');
cmp_ok($value->{'pg_fence_resource_checks_total resource=""'} // 0, '>', 10, 'and those that gave way, without a name');

# A database whose names can hold any bytes: the exporter asks for UTF-8
sql($node, q{CREATE DATABASE bytes TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'});
my $bytes = session($node, dbname => 'bytes');
$bytes->does(qq{
	SET client_encoding = 'SQL_ASCII';
	CREATE EXTENSION pg_fence;
	CREATE TABLE "t\xff" (w text);
	SELECT fence.protect('"t\xff"', 'odd:\xff');
	CREATE SERVER "s\xff" FOREIGN DATA WRAPPER fence_redis OPTIONS (socket '/nonexistent', breaker_ms '0')});
gives($bytes, qq{SELECT fence.check('odd:\xff', 2)}, 't', 'a name that is not UTF-8');
refuses($bytes, qq{SELECT fence.check('odd:\xff', 1)}, 'PF001', '... counted');
refuses($bytes, qq{INSERT INTO "t\xff" VALUES ('')}, 'PF002', '... a table');
refuses($bytes, qq{SELECT fence.check('odd:\xff', 2, 'a', 's\xff')}, 'PF006', '... a server');
$bytes->does("SET client_encoding = 'UTF8'");
foreach my $query ($yaml =~ /^  query: \|\n(.*?)^  metrics:/msg)
{
	my ($metric) = $query =~ /.* AS (\w+)/s;
	$bytes->ask($query);
	is($bytes->sqlstate // '', '', "a query ($metric) in a database without encoding");
	note $bytes->output;
}
$bytes->quit;

# Without shared memory only the leases are left
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\npg_fence.max_resources = 0");
$node->restart;
# the exporter has to notice that its connection is gone
$end = time + 30;
do
{
	die "the exporter does not come back: $output" if time > $end;
	sleep 0.1;
	$exporter->pump_nb;
	$value = scrape();
} until ($value && %$value);
is(join(' ', sort grep { !/^pg_fence_leases_/ } keys %$value), '', 'without shared memory: no statistics');
is($value->{'pg_fence_leases_resources state="held"'}, 2, '... but leases');
$exporter->signal('TERM');
$exporter->finish;

finish($node);

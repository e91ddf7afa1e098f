
# What is said in two places is the same in both: version, files, names of functions, settings
# and views.  And the links of README lead somewhere.

use strict;
use warnings;

use FindBin;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = "$FindBin::RealBin/../..";
my $control = slurp_file("$root/pg_fence.control");
my $meta = decode_json(slurp_file("$root/META.json"));
my $makefile = slurp_file("$root/Makefile");
my $readme = slurp_file("$root/README.md");

my ($version) = $control =~ /^default_version = '(.*)'$/m;
my $script = slurp_file("$root/sql/pg_fence--$version.sql");

is($meta->{version}, "$version.0", 'META.json has the version of the control file');
is($meta->{provides}{pg_fence}{version}, "$version.0", '... twice');
ok(-f "$root/$meta->{provides}{pg_fence}{file}", '... and names a script that exists');

my @sources = sort map { m{/(src/\w+)\.c$} } glob("$root/src/*.c");
my @objects = sort $makefile =~ m{^\t(src/\w+)\.o}mg;
is_deeply(\@objects, \@sources, 'the Makefile builds every source file');

my %seen;
my @names = grep { !$seen{$_}++ } $script =~ /^CREATE (?:FUNCTION|VIEW) (fence\.\w+)/mg;
cmp_ok(scalar @names, '>', 10, 'the script creates functions and views');
foreach my $name (@names)
{
	like($readme, qr/`\Q$name\E\b/, "README knows $name");
}
foreach my $source (@sources)
{
	foreach my $setting (slurp_file("$root/$source.c") =~ /Define\w+Variable\("(pg_fence\.\w+)"/g)
	{
		like($readme, qr/`\Q$setting\E`/, "README knows $setting");
	}
}
my @states = map { join '', /'(\w)'/g } grep { /MAKE_SQLSTATE/ } split /\n/, slurp_file("$root/src/errors.h");
foreach my $state (@states)
{
	like($readme, qr/\| $state \|/, "README explains $state");
}

my %anchor = map { lc =~ s/[^\w\- ]//gr =~ tr/ /-/r => 1 } $readme =~ /^#+ (.*)$/mg;
foreach my $link ($readme =~ /\]\(([^)]+)\)/g)
{
	next if $link =~ /^https?:/;
	ok($link =~ /^#(.*)/ ? $anchor{$1} : -e "$root/$link", "README links to $link");
}

done_testing();

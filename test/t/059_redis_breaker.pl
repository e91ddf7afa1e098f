# Where there is shared memory, one session finds out for all that a Redis is down.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use RedisTest;
use Test::More;

my $node = fence_node('breaker', conf => "shared_preload_libraries = '" . fence_library() . "'");
my $fake = fake_redis();
my ($first, $second) = map { session($node) } 1 .. 2;
my $check = q{SELECT fence.check('stock', 1, 'a', 's')};

redis_server($first, 's', $fake, breaker_ms => 600000);
redis_server($first, 'other', $fake, breaker_ms => 600000);
$fake->behave(reply => "-LOADING Redis is loading the dataset in memory\r\n");

refuses($first, $check, 'PF006', 'one session asks');
is($fake->counts->{commands}, 1, '... once');
refuses($_, $check, 'PF006', 'nobody asks again') foreach $first, $second;
refuses($node, $check, 'PF006', '... nor does a new session');
is($fake->counts->{commands}, 1, '... indeed');
refuses($second, $check =~ s/'s'/'other'/r, 'PF006', 'another server is asked');
is($fake->counts->{commands}, 2, '... once');

$fake->behave(reply => "*2\r\n:1\r\n:60000\r\n");
alter_server($first, 's', breaker_ms => 0);
gives($node, $check, 't', 'with other options, the server is asked again, by a new session');
gives($_, $check, 't', '... and by those that were refused') foreach $first, $second;

$_->quit foreach $first, $second;
finish($node);

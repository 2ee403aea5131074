# As root. VERSION: one that is in /opt. Services of this host have it when they are started the next time.
test -d "/opt/lcm-$VERSION" && ln -sfT "lcm-$VERSION" /opt/lcm

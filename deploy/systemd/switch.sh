# As root. VERSION: one that is in /opt. Services of this host have it when they are started the next time.
if [ -x "/opt/lcm-$VERSION/bin/lcm" ]; then
  ln -sfT "lcm-$VERSION" /opt/lcm
else
  echo "/opt/lcm-$VERSION is not installed, or not to its end: run deploy/systemd/package.sh" >&2; false
fi

# As root, while LCM runs. COPY: a file that does not exist yet.
env $(sed -nE "s/^(STORE_URL|LCM_CA_FILE)=([\"']?)(.*)\2 *$/\1=\3/p" /etc/lcm/lcm.env /etc/lcm/control-plane.env) \
  /opt/lcm/bin/python -m lcm.control_plane.store.mongo.backup save "$COPY"

# As root, with bash, in the root of the repository. CERTIFICATES: the folder with ca.crt, lcm.crt and lcm.key.
useradd --system --home-dir /var/lib/lcm --shell /usr/sbin/nologin lcm
install -d -m 0755 /etc/lcm
install -m 0644 "$CERTIFICATES/ca.crt" "$CERTIFICATES/lcm.crt" /etc/lcm/
install -m 0640 -g lcm "$CERTIFICATES/lcm.key" /etc/lcm/
install -m 0600 deploy/systemd/*.env /etc/lcm/     # then enter your addresses, tokens and passwords
install -D -m 0644 --backup=numbered deploy/systemd/haproxy.cfg /etc/haproxy/haproxy.cfg # then enter the control planes
install -m 0644 deploy/systemd/lcm@.service /etc/systemd/system/

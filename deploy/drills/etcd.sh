# On each of three hosts. NAME: etcd1, etcd2 or etcd3; HOST: the address of this host; HOST1 to HOST3: those of all.
exec etcd --name "$NAME" --data-dir "$DATA/etcd" \
  --listen-client-urls "https://$HOST:2379" --advertise-client-urls "https://$HOST:2379" \
  --listen-peer-urls "https://$HOST:2380" --initial-advertise-peer-urls "https://$HOST:2380" \
  --initial-cluster "etcd1=https://$HOST1:2380,etcd2=https://$HOST2:2380,etcd3=https://$HOST3:2380" \
  --client-cert-auth --trusted-ca-file ca.crt --cert-file server.crt --key-file server.key \
  --peer-client-cert-auth --peer-trusted-ca-file ca.crt --peer-cert-file server.crt --peer-key-file server.key \
  --auto-compaction-retention 1h

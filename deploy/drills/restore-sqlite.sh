# With LCM stopped. DATA: the folder of the store (LCM_DATA_DIR); COPY: the backup. The user of the folder gets the file.
# What is there goes aside, logs (lcm.db-wal) too: SQLite would apply them to the restored file. If it fails, repeat it.
install -m 0600 "$COPY" "$DATA/restored" && chown --reference="$DATA" "$DATA/restored" &&
  aside=$(mktemp -d "$DATA/before-restore-XXXX") &&
  find "$DATA/" -maxdepth 1 -name 'lcm.db*' -exec mv -t "$aside" {} + && mv "$DATA/restored" "$DATA/lcm.db"

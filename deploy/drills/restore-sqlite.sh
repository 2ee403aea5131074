# With LCM stopped. DATA: the folder of the store (LCM_DATA_DIR); COPY: the backup. The user of the folder gets the file.
mkdir "$DATA/before-restore" && mv "$DATA"/lcm.db* "$DATA/before-restore/" &&
  install -m 0600 "$COPY" "$DATA/lcm.db" && chown --reference="$DATA" "$DATA/lcm.db"

# With LCM stopped. DATA: the folder of the store (LCM_DATA_DIR); COPY: the backup.
mkdir "$DATA/before-restore"
mv "$DATA"/lcm.db* "$DATA/before-restore/"
cp "$COPY" "$DATA/lcm.db"

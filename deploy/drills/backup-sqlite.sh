# While LCM runs. DATA: the folder of the store (LCM_DATA_DIR); COPY: a file that does not exist yet.
python -m lcm.control_plane.store.sqlite.backup "$DATA/lcm.db" "$COPY"

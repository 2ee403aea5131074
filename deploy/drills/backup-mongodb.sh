# While LCM runs, with STORE_URL and LCM_CA_FILE as the control planes have them. COPY: a file that does not exist yet.
python -m lcm.control_plane.store.mongo.backup save "$COPY"

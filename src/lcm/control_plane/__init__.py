"""The control plane: the only owner of records, the only writer of the store. It calls neither cloud nor CML."""

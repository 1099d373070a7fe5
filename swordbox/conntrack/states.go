package conntrack

// States calls visit with the ID and the state of every flow in use.
func (t *Table) States(visit func(table string, entry uint32, state string)) {
	for _, fl := range t.flows {
		if fl.Generation != 0 {
			visit("flow", fl.ID, fl.State.String())
		}
	}
}

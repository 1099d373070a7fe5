package conntrack

// Clearable counts the rows that Clear would forget.
func (t *Table) Clearable() int {
	n := 0
	for _, r := range t.rows {
		if r.clearable() {
			n++
		}
	}
	return n
}

// Clear forgets all rows that can be forgotten, on an operator's wish: those that are not pinned, nor is their other half,
// and those in quarantine. It returns how many. Connections that are alive are learnt anew from their packets; the table
// is then in the middle of them, as after a start.
func (t *Table) Clear() int {
	before := t.used
	for _, r := range t.rows {
		if r.clearable() {
			t.drop(r)
		}
	}
	t.started, t.cfg.Settle = false, max(t.cfg.Settle, defaultSettle)
	return before - t.used
}

func (r *Row) clearable() bool {
	return r.Generation != 0 && !r.Pinned && (r.Peer == nil || !r.Peer.Pinned)
}

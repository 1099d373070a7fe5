package switchconn

// States calls visit for the state of every connection of the switch: entry is its shard.
func (d *Dialer) States(visit func(table string, entry uint32, state string)) {
	for _, l := range d.links {
		visit("switch connection", uint32(l.Shard), l.state.String())
	}
}

package switchconn

// States calls visit with the shard and the state of every connection of the switch.
func (d *Dialer) States(visit func(table string, entry uint32, state string)) {
	for _, l := range d.links {
		visit("switch connection", uint32(l.Shard), l.state.String())
	}
}

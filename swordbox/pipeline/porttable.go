package pipeline

// PortTable has the rules of a program about arriving frames by their ports, at most one each. Marks
// counts these ports for the switch.
type PortTable[T any] struct {
	Marks *MarkedPorts
	at    []*T // index is the ingress port
}

// At returns the rule of a port; nil means that it has none.
func (p *PortTable[T]) At(port int) *T {
	if port >= len(p.at) {
		return nil
	}
	return p.at[port]
}

// Set replaces the rules by those of a list. port returns the port of a rule.
func (p *PortTable[T]) Set(list []*T, port func(*T) int) {
	for i, t := range p.at {
		if t != nil {
			p.Marks.Remove(i)
		}
	}
	clear(p.at)
	for _, t := range list {
		i := port(t)
		for len(p.at) <= i {
			p.at = append(p.at, nil)
		}
		p.at[i] = t
		p.Marks.Add(i)
	}
}

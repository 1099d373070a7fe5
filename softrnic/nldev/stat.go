package nldev

// modeNone means that queue pairs have no counters of their own (RDMA_COUNTER_MODE_NONE).
const modeNone = 0

// getCounters answers with the counters of a port, or, if the request is about those of queue pairs, that
// there are none.
func (a *query) getCounters(m *message) error {
	d, err := a.named()
	if err == nil {
		err = a.port1(true)
	}
	if err != nil {
		return err
	}
	m.handle(d)
	m.u32(attrPortIndex, 1)
	if res, ok := a.at.u32(attrStatRes); ok {
		if _, asks := a.at.u32(attrStatMode); !asks || res != attrResQP {
			return notSupported
		}
		m.u32(attrStatMode, modeNone)
		return nil
	}
	m.nest(attrHWCounters, func() {
		for _, c := range a.s.Counters(d.Index) {
			if len(m.b)+len(c.Name)+counterRoom > MaxDatagram {
				break // tools read no longer message
			}
			m.nest(attrHWCounter, func() {
				m.text(attrHWCounterName, c.Name)
				m.u64(attrHWCounterValue, c.Value)
			})
		}
	})
	return nil
}

// counterRoom is what a counter takes of a message beside its name, in bytes.
const counterRoom = attrHeader + attrHeader + 4 + attrHeader + 8

// dumpCounters lists the counters of queue pairs or regions: there are none.
func (a *query) dumpCounters() error {
	switch res, ok := a.at.u32(attrStatRes); {
	case !ok:
		return invalid
	case res != attrResQP && res != attrResMR:
		return invalid
	}
	return nil
}

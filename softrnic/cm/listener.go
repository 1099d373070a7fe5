package cm

import (
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// listener names the owner of those requests for a service that arrive at one of the addresses in
// `at`. The zero Prefix means all addresses of the NIC.
type listener struct {
	at    netip.Prefix
	owner uint64
}

// Listen accepts requests for a service that arrive at an address in `at`; the zero Prefix means
// all addresses. Their events go to owner. It fails with ErrBusy if another listener of the service
// has an address in common with `at`, and with ErrLimit if there are MaxListeners.
func (m *Machine) Listen(s mad.ServiceID, at netip.Prefix, owner uint64) error {
	const op = "listen"
	n := 0
	for service, of := range m.listeners {
		n += len(of)
		for _, l := range of {
			if service == s && (!at.IsValid() || !l.at.IsValid() || at.Overlaps(l.at)) {
				return verbs.Errorf(op, verbs.ErrBusy, "service %v has a listener already", s)
			}
		}
	}
	if n >= m.cfg.MaxListeners {
		return verbs.Errorf(op, verbs.ErrLimit, "there are %d listeners; end one of them first", n)
	}
	m.listeners[s] = append(m.listeners[s], listener{at, owner})
	return nil
}

// Unlisten ends the listeners of an owner for a service: later requests are refused. Requests that
// were already reported stay.
func (m *Machine) Unlisten(s mad.ServiceID, owner uint64) {
	left := slices.DeleteFunc(m.listeners[s], func(l listener) bool { return l.owner == owner })
	if m.listeners[s] = left; len(left) == 0 {
		delete(m.listeners, s)
	}
}

// listener returns the owner of the listener for a request. If there is none, known reports whether
// the service has listeners at other addresses.
func (in incoming) listener(s mad.ServiceID) (owner uint64, known, ok bool) {
	of := in.m.listeners[s]
	for _, l := range of {
		if !l.at.IsValid() || l.at.Contains(in.local) {
			return l.owner, true, true
		}
	}
	return 0, len(of) > 0, false
}

package netcache

import "github.com/rdmalab/rdmalab/softrnic/clock"

// sender is who has sent a request, and under which number. Clients of two VLANs may have the same address, and
// the bytes of an address of IPv4 may begin one of IPv6.
type sender struct {
	addr     [16]byte
	v6       bool
	vlan     uint64 // see packet
	port, id uint16
}

// asked is a request that the switch has forwarded under the client's number.
type asked struct {
	sender
	kind Verb
	hash uint64 // of the key
	used uint64 // value of askeds.clock when the request was forwarded; 0 means that the place is free
}

// askeds has the newest requests that were forwarded, also answered ones: a network may deliver a request or
// its answer twice. A request replaces an older one of its client with the same number, or else the oldest one
// of its set.
type askeds struct {
	places []asked
	clock  uint64
}

// maxAsked is how many requests the switch remembers for a rule.
const maxAsked = 1 << 13

func newAskeds() askeds { return askeds{places: make([]asked, maxAsked)} }

func (t *askeds) set(a *sender) []asked {
	h := hashOf(begin^uint64(a.port)<<16^uint64(a.id)^a.vlan<<32, a.addr[:])
	i := int(h>>16%(maxAsked/ways)) * ways
	return t.places[i : i+ways]
}

// add notes a request.
func (t *askeds) add(a sender, kind Verb, hash uint64) {
	set := t.set(&a)
	to := &set[0]
	for i := range set {
		if p := &set[i]; p.used != 0 && p.sender == a {
			to = p
			break
		} else if p.used < to.used {
			to = p
		}
	}
	t.clock++
	*to = asked{sender: a, kind: kind, hash: hash, used: t.clock}
}

// find returns a request; nil means that the switch does not know it.
func (t *askeds) find(a *sender) *asked {
	set := t.set(a)
	for i := range set {
		if p := &set[i]; p.used != 0 && p.sender == *a {
			return p
		}
	}
	return nil
}

// Probes leave under ports from firstPort on, which are above the ports that Linux gives to programs
// (net.ipv4.ip_local_port_range), and with all numbers.
const (
	firstPort  = 61000
	probePorts = 1<<16 - firstPort
	// maxProbes is how many probes may be with the server. It divides the count of numbers.
	maxProbes = 1 << 8
	// probeTries is how many numbers a probe tries, because probes of other numbers may have the same place.
	probeTries = 8
)

// probe is a GET that has left under a number of the switch's own. So its answer cannot be that to another
// request, and is answered at most once.
type probe struct {
	client sender // as the client has sent it
	number uint32
	since  clock.Time
	at     int
	fill   uint64
	hash   uint64
	live   bool
}

// probes has the probes that are with the server.
type probes struct{ list [maxProbes]probe }

// numbers gives all probes of a switch their numbers. They go up, from a first one that differs between incarnations
// of the switch, so a number is never that of another request whose answer may still come.
type numbers struct {
	next  uint32
	begun bool
}

// begin notes a probe that leaves now, and returns the port and the number under which it leaves. ok is false if there
// is no room. A probe has its place until its answer has come, or patience is over: whatever has become of its key, its
// client waits for the answer.
func (t *probes) begin(n *numbers, p probe, now clock.Time) (port, id uint16, ok bool) {
	for range probeTries {
		p.number = n.next
		n.next = (n.next + 1) % (probePorts << 16)
		if x := &t.list[p.number%maxProbes]; !x.live || now.Sub(x.since) > patience {
			p.live, p.since = true, now
			*x = p
			return uint16(firstPort + p.number>>16), uint16(p.number), true
		}
	}
	return 0, 0, false
}

// end returns the probe that an answer belongs to, which has a port and a number of the switch's own, and forgets it.
// ok is false if there is none.
func (t *probes) end(to sender) (p probe, ok bool) {
	if to.port < firstPort {
		return p, false
	}
	number := uint32(to.port-firstPort)<<16 | uint32(to.id)
	x := &t.list[number%maxProbes]
	if !x.live || x.number != number || x.client.addr != to.addr || x.client.v6 != to.v6 || x.client.vlan != to.vlan {
		return p, false
	}
	x.live = false
	return *x, true
}

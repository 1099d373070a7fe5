package cm

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

const (
	testService = mad.ServiceID(0x106_0007)
	testGUID    = 0x505400fffe770000
)

var addrs = map[string]netip.Addr{"a": netip.MustParseAddr("10.77.0.1"), "b": netip.MustParseAddr("10.77.0.2")}

// node is one machine and the objects of its application.
type node struct {
	name string
	m    *Machine
	out  Actions
	// names of connections in the order in which they appear, and the reverse map.
	names map[mad.CommID]string
	ids   map[string]mad.CommID
	count int
	seed  uint64
}

func newNode(t testing.TB, name string, seed uint64, change func(*Config)) *node {
	t.Helper()
	n := &node{name: name, seed: seed, names: map[mad.CommID]string{0: "0"}, ids: map[string]mad.CommID{}}
	n.restart(t, change)
	return n
}

// restart removes everything except the names.
func (n *node) restart(t testing.TB, change func(*Config)) {
	t.Helper()
	n.seed++
	cfg := Config{Rand: rand.New(rand.NewPCG(n.seed, uint64(n.name[0]))), GUID: testGUID + uint64(n.name[0]-'a'+1)}
	if change != nil {
		change(&cfg)
	}
	var err error
	if n.m, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	n.out.Reset()
}

// call gives a connection a name.
func (n *node) call(id mad.CommID) string {
	if _, ok := n.names[id]; !ok {
		n.count++
		name := fmt.Sprintf("%s%d", n.name, n.count)
		n.names[id], n.ids[name] = name, id
	}
	return n.names[id]
}

func (n *node) peer() string {
	if n.name == "a" {
		return "b"
	}
	return "a"
}

// connect dials the other node with a queue pair.
func (n *node) connect(now clock.Time, s mad.ServiceID, qpn wire.QPN) (mad.CommID, error) {
	req := mad.REQ{Service: s, QPN: qpn, PSN: 0x100, MTU: 3, Retry: 7, RNRRetry: 7, PKey: 0xffff}
	copy(req.Private[:], "hello")
	return n.m.Connect(now, 1, addrs[n.name], addrs[n.peer()], req, &n.out)
}

func (n *node) accept(now clock.Time, id mad.CommID, qpn wire.QPN) error {
	rep := mad.REP{QPN: qpn, PSN: 0x200, RNRRetry: 7}
	copy(rep.Private[:], "welcome")
	return n.m.Accept(now, id, rep, &n.out)
}

// describe returns a datagram as one line.
func describe(names func(mad.CommID) string, d *Datagram) string {
	var h mad.Header
	msg, err := mad.Parse(d.MAD[:], &h)
	if err != nil {
		return err.Error()
	}
	switch m := msg.(type) {
	case *mad.REQ:
		return fmt.Sprintf("REQ %s qpn %#x", names(m.LocalID), m.QPN)
	case *mad.REP:
		return fmt.Sprintf("REP %s to %s qpn %#x", names(m.LocalID), names(m.RemoteID), m.QPN)
	case *mad.RTU:
		return fmt.Sprintf("RTU %s to %s", names(m.LocalID), names(m.RemoteID))
	case *mad.MRA:
		return fmt.Sprintf("MRA %s to %s about %s wait %v", names(m.LocalID), names(m.RemoteID), stages[m.About], mad.Time(m.Timeout))
	case *mad.REJ:
		return fmt.Sprintf("REJ %s to %s about %s: %v", names(m.LocalID), names(m.RemoteID), stages[m.About], m.Reason)
	case *mad.DREQ:
		return fmt.Sprintf("DREQ %s to %s qpn %#x", names(m.LocalID), names(m.RemoteID), m.QPN)
	case *mad.DREP:
		return fmt.Sprintf("DREP %s to %s", names(m.LocalID), names(m.RemoteID))
	case *mad.SIDRReq:
		return fmt.Sprintf("SIDR_REQ %s", names(m.RequestID))
	case *mad.SIDRRep:
		return fmt.Sprintf("SIDR_REP %s: %v qpn %#x", names(m.RequestID), m.Status, m.QPN)
	}
	return h.Attr.String()
}

var stages = map[mad.Stage]string{mad.StageREQ: "REQ", mad.StageREP: "REP", mad.StageOther: "another", 3: "?"}

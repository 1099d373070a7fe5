package cm

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// The scenario scripts of testdata: two connection managers a and b on a wire that the script
// controls. testdata/README.md explains the commands; -rewrite rewrites the results.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if !strings.HasSuffix(path, ".txt") {
			return // the picture, or the README
		}
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t, s.d, s.text = t, d, strings.Builder{}
			cmd, ok := commands[d.Cmd]
			if !ok {
				d.Fatalf(t, "unknown command %q", d.Cmd)
			}
			cmd(s)
			s.collect()
			if s.text.Len() == 0 {
				return "ok\n"
			}
			return s.text.String()
		})
	})
}

// script is the state of one scenario.
type script struct {
	t     *testing.T
	d     *datadriven.TestData
	text  strings.Builder
	nodes []*node
	now   clock.Time
	wire  []Datagram
	held  []Datagram
}

var commands = map[string]func(*script){
	"pair": (*script).pair, "listen": (*script).listen, "connect": (*script).connect, "accept": (*script).accept,
	"ready": (*script).ready, "reject": (*script).reject, "delay": (*script).delay, "disconnect": (*script).disconnect,
	"abort": (*script).abort, "packet": (*script).packet, "gone": (*script).gone, "release-owner": (*script).releaseOwner,
	"resolve": (*script).resolve, "answer": (*script).answer, "restart": (*script).restart,
	"deliver": (*script).deliver, "drop": (*script).drop, "dup": (*script).dup, "hold": (*script).hold, "release": (*script).release,
	"advance": (*script).advance, "state": (*script).state, "stats": (*script).stats,
}

func (s *script) printf(format string, args ...any) { fmt.Fprintf(&s.text, format+"\n", args...) }

func (s *script) err(err error) {
	if err != nil {
		s.printf("error: %v", err)
	}
}

func (s *script) num(key string, def uint64) uint64 {
	arg, ok := s.d.Arg(key)
	if !ok {
		return def
	}
	v, err := strconv.ParseUint(arg.Vals[0], 0, 64)
	if err != nil {
		s.d.Fatalf(s.t, "%s: %v", key, err)
	}
	return v
}

// node returns the node that the first argument names, or to which the named connection belongs.
func (s *script) node() *node {
	if len(s.d.CmdArgs) == 0 {
		s.d.Fatalf(s.t, "which node?")
	}
	return s.nodes[s.d.CmdArgs[0].Key[0]-'a']
}

// conn returns the connection that the first argument names.
func (s *script) conn() mad.CommID { return s.node().ids[s.d.CmdArgs[0].Key] }

// name returns the name of a connection of either node.
func (s *script) name(id mad.CommID) string {
	for _, n := range s.nodes {
		if name, ok := n.names[id]; ok {
			return name
		}
	}
	return "?"
}

// collect prints events and puts datagrams on the wire, each of which it prints.
func (s *script) collect() {
	for _, n := range s.nodes {
		for _, e := range n.out.Events {
			s.printf("%s: %v", n.call(e.Conn), e)
		}
		for _, d := range n.out.Tx {
			s.printf("%s> %s", n.name, describe(s.name, &d))
			s.wire = append(s.wire, d)
		}
		n.out.Reset()
	}
}

func (s *script) change(c *Config) {
	c.MaxRetries = uint8(s.num("retries", 3))
	c.MaxConns, c.MaxRequests = int(s.num("conns", 0)), int(s.num("requests", 0))
	c.MaxTimeWait = int(s.num("time-wait", 0))
}

func (s *script) pair() {
	s.nodes = []*node{newNode(s.t, "a", 1, s.change), newNode(s.t, "b", 1, s.change)}
	s.wire, s.held, s.now = nil, nil, 0
}

func (s *script) listen()  { s.err(s.node().m.Listen(testService, netip.Prefix{}, s.num("owner", 9))) }
func (s *script) restart() { s.node().restart(s.t, s.change) }

func (s *script) connect() {
	n := s.node()
	id, err := n.connect(s.now, mad.ServiceID(s.num("service", uint64(testService))), wire.QPN(s.num("qpn", 0x11)))
	if s.err(err); err == nil {
		n.call(id)
	}
}

func (s *script) accept() {
	s.err(s.node().accept(s.now, s.conn(), wire.QPN(s.num("qpn", 0x22))))
}

func (s *script) ready() { s.err(s.node().m.Ready(s.conn(), &s.node().out)) }
func (s *script) delay() { s.err(s.node().m.Delay(s.conn(), &s.node().out)) }

func (s *script) reject() {
	reason := mad.Reason(s.num("reason", uint64(mad.ReasonConsumer)))
	s.err(s.node().m.Reject(s.now, s.conn(), Refusal{Reason: reason, Private: []byte("no")}, &s.node().out))
}

func (s *script) disconnect() { s.err(s.node().m.Disconnect(s.now, s.conn(), &s.node().out)) }
func (s *script) abort()      { s.node().m.Abort(s.now, s.conn(), &s.node().out) }

func (s *script) packet() { s.node().m.PacketSeen(wire.QPN(s.num("qpn", 0)), &s.node().out) }
func (s *script) gone()   { s.node().m.QPGone(s.now, wire.QPN(s.num("qpn", 0)), &s.node().out) }

func (s *script) releaseOwner() { s.node().m.Release(s.now, s.num("owner", 1), &s.node().out) }

func (s *script) resolve() {
	n := s.node()
	id, err := n.m.Resolve(s.now, 1, addrs[n.name], addrs[n.peer()], mad.SIDRReq{Service: testService, PKey: 0xffff}, &n.out)
	if s.err(err); err == nil {
		n.call(id)
	}
}

func (s *script) answer() {
	s.err(s.node().m.Answer(s.now, s.conn(), mad.SIDRRep{QPN: wire.QPN(s.num("qpn", 0x33)), QKey: 7}, &s.node().out))
}

// pick returns the index of a datagram on the wire, 0 if none is given.
func (s *script) pick() int {
	i := int(s.num("n", 0))
	if i >= len(s.wire) {
		s.d.Fatalf(s.t, "datagram %d of %d", i, len(s.wire))
	}
	return i
}

// deliver delivers all datagrams on the wire and those that they cause, or the first n of them.
func (s *script) deliver() {
	for left := s.num("n", 1000); left > 0 && len(s.wire) > 0; left-- {
		d := s.wire[0]
		s.wire = slices.Delete(s.wire, 0, 1)
		to := s.nodes[0]
		if d.Remote == addrs["b"] {
			to = s.nodes[1]
		}
		to.m.Handle(s.now, Way{d.Remote, d.Local, 0xffff}, d.MAD[:], &to.out)
		s.collect()
	}
}

func (s *script) drop() {
	i := s.pick()
	s.wire = slices.Delete(s.wire, i, i+1)
}

func (s *script) dup() { s.wire = append(s.wire, s.wire[s.pick()]) }

func (s *script) hold() {
	i := s.pick()
	s.held = append(s.held, s.wire[i])
	s.wire = slices.Delete(s.wire, i, i+1)
}

func (s *script) release() { s.wire, s.held = append(s.wire, s.held...), nil }

// advance advances the time, and prints when an event happens.
func (s *script) advance() {
	d, err := time.ParseDuration(s.d.CmdArgs[0].Key)
	if err != nil {
		s.d.Fatalf(s.t, "%v", err)
	}
	for end := s.now.Add(d); ; {
		at := clock.Min(s.nodes[0].m.Deadline(), s.nodes[1].m.Deadline())
		if at > end {
			s.now = end
			return
		}
		s.now = max(s.now, at)
		s.printf("at %v", time.Duration(s.now).Round(time.Millisecond))
		for _, n := range s.nodes {
			n.m.Tick(s.now, &n.out)
		}
		s.collect()
	}
}

func (s *script) state() {
	for _, n := range s.nodes {
		names := make([]string, 0, len(n.ids))
		for name := range n.ids {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			s.printf("%s %v", name, n.m.State(n.ids[name]))
		}
	}
}

func (s *script) stats() { s.printf("%+v", s.node().m.Stats()) }

// Delay asks the peer, by an MRA, to wait for the application's answer to its REQ or REP. The
// machine itself does so when it receives the message again.
func (m *Machine) Delay(id mad.CommID, out *Actions) error {
	c, err := m.requested("delay", id, onDelay)
	if err != nil {
		return err
	}
	stage := mad.StageREQ
	if c.state == REPRcvd {
		stage = mad.StageREP
	}
	m.sendMRA(c, stage, out)
	return nil
}

// Release ends all listeners of an owner, and aborts its connections.
func (m *Machine) Release(now clock.Time, owner uint64, out *Actions) {
	for s := range m.listeners {
		m.Unlisten(s, owner)
	}
	var own []*conn
	for _, c := range m.table.conns {
		if c.owner == owner && !c.orphan {
			own = append(own, c)
		}
	}
	slices.SortFunc(own, func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
	for _, c := range own {
		m.abort(now, c, out)
	}
}

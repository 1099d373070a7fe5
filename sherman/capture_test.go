package sherman_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// capture records the RoCEv2 packets of connections on the link of cn0, in order.
type capture struct {
	list  []packet
	frame wire.Frame
}

// packet is a captured packet: its receiver, and the opcode and length of the IP packet as in the
// published table.
type packet struct {
	qp   [5]byte // address and number of the receiver
	up   bool
	text string
	len  int
}

func (c *capture) see(ev *simnet.Event) {
	if ev.Kind != simnet.Sent || ev.Link() != "cn0" || wire.ParseFrame(ev.Frame, &c.frame) != nil || c.frame.BTH.DestQP <= 1 {
		return
	}
	ip := ev.Frame[14:] // no VLAN, IPv4
	p := packet{up: ev.Dir() == fault.Up, len: int(binary.BigEndian.Uint16(ip[2:]))}
	p.qp = [5]byte{ip[19], 0, byte(c.frame.BTH.DestQP >> 16), byte(c.frame.BTH.DestQP >> 8), byte(c.frame.BTH.DestQP)}
	p.text = fmt.Sprintf("%v %d", c.frame.BTH.Opcode, p.len)
	c.list = append(c.list, p)
}

// since returns the packets after the first n: those to the given queue pairs or, if none are
// given, all.
func (c *capture) since(n int, qps map[[5]byte]bool) (out []packet) {
	for _, p := range c.list[n:] {
		if qps == nil || qps[p.qp] {
			out = append(out, p)
		}
	}
	return out
}

// say describes packets on one line, with round trips (requests and their responses) and bytes.
func say(list []packet) string {
	var b strings.Builder
	rtts, bytes := 0, 0
	for i, p := range list {
		if !p.up && (i == 0 || list[i-1].up) {
			rtts++
		}
		bytes += p.len
		b.WriteString(p.text + ", ")
	}
	return fmt.Sprintf("%s%d RTT, %d bytes", &b, rtts, bytes)
}

// The published sequences, with the lengths of their IP packets (SIGMOD 2022, §5 of its code, §10
// of its repository): 60 and 1,072 for the READ of a page, 72 and 56 for the CAS, 80 for a record
// of 18 bytes with padding, 68 for the release, 48 for an ACK.
const (
	searched   = "RC_READ_REQUEST 60, RC_READ_RESPONSE_ONLY 1072, "
	locked     = "RC_CMP_SWAP 72, RC_ATOMIC_ACK 56, "
	wrote      = "RC_WRITE_ONLY 80, "
	released   = "RC_WRITE_ONLY 68, "
	answered   = "RC_ACK 48, "
	onSearch   = searched + "1 RTT, 1132 bytes"
	onWrite    = locked + searched + wrote + released + answered + "3 RTT, 1456 bytes"
	onHandOver = searched + wrote + answered + "2 RTT, 1260 bytes"
	// No client waits: the writer releases the lock.
	onLastOver = searched + wrote + released + answered + "2 RTT, 1328 bytes"
)

// Round trips and bytes on the wire, independent of the client's counters.
func TestRoundTripsInACapture(t *testing.T) {
	seen := &capture{}
	g := newRig(t, simrack.Options{Trace: seen.see}, region)
	g.format(sherman.FormatConfig{})
	n := g.node(sherman.NodeConfig{})
	g.client("cn0", n, func(c *sherman.Client, rt verbs.Runtime) error {
		for k := range uint64(200) {
			if err := c.Insert(k, value(k, 0), soon(rt)); err != nil {
				return err
			}
		}
		for k := range uint64(200) { // so that the index cache has the pages
			if _, err := c.Get(k, nil, soon(rt)); err != nil {
				return err
			}
		}
		for _, op := range []struct {
			want string
			do   func() error
		}{
			{onSearch, func() error { _, err := c.Get(77, nil, soon(rt)); return err }},
			{onWrite, func() error { return c.Put(77, value(77, 1), soon(rt)) }},
			{onWrite, func() error { return c.Delete(78, soon(rt)) }},
			{onWrite, func() error { return c.Insert(78, value(78, 2), soon(rt)) }},
		} {
			before := len(seen.list)
			if err := op.do(); err != nil {
				return err
			}
			if got := say(seen.since(before, nil)); got != op.want {
				t.Errorf("on the wire: %s; want %s", got, op.want)
			}
		}
		return nil
	})
	g.run()
	over := map[string]int{}
	stage := 0
	for id := range 3 {
		g.client("cn0", n, func(c *sherman.Client, rt verbs.Runtime) error {
			for stage != id {
				rt.Sleep(1000)
			}
			if err := c.Put(77, value(77, 3), soon(rt)); err != nil {
				return err
			}
			before := len(seen.list)
			own := map[[5]byte]bool{} // the queue pairs of this client and the server's; no other client runs
			if err := c.Put(77, value(77, 3), soon(rt)); err != nil {
				return err
			}
			for _, p := range seen.since(before, nil) {
				own[p.qp] = true
			}
			for stage++; stage < 3; {
				rt.Sleep(1000)
			}
			for i := range uint64(50) {
				before := len(seen.list)
				if err := c.Put(77, value(77, i), soon(rt)); err != nil {
					return err
				}
				list := seen.since(before, own)
				if !slices.ContainsFunc(list, func(p packet) bool { return strings.HasPrefix(p.text, "RC_CMP_SWAP") }) {
					over[say(list)]++
				}
			}
			return nil
		})
	}
	g.run()
	if t.Logf("%v", over); len(over) > 2 || over[onHandOver] < 50 || over[onHandOver]+over[onLastOver] < 60 {
		t.Errorf("writes with the lock handed over: %v", over)
	}
}

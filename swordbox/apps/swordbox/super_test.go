package swordbox_test

import (
	"encoding/binary"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/hotwords"
	"github.com/rdmalab/rdmalab/swordbox/packetbuffer"
	"github.com/rdmalab/rdmalab/swordbox/serialize"
)

// superOf returns a super-frame of packets of 64 bytes to a queue pair of the server.
func superOf(qp wire.QPN, ops ...wire.Opcode) packetio.Frame {
	const headers = 14 + 20 + 8
	var data []byte
	f := packetio.Frame{}
	for i, op := range ops {
		p := benchFrame(1, benchServer, qp, op, wire.PSN(i))
		p.IPv4.ID, p.Payload = uint16(i), make([]byte, 64)
		one := p.AppendTo(nil)
		if i == 0 {
			data, f.SegSize = append(data, one[:headers]...), len(one)-headers
		}
		data = append(data, one[headers:]...)
	}
	binary.BigEndian.PutUint16(data[16:], uint16(len(data)-14))
	binary.BigEndian.PutUint16(data[38:], uint16(len(data)-34))
	ip := data[14:34]
	binary.BigEndian.PutUint16(ip[10:], ^sumOf(ip[:10], ip[12:]))
	f.Data = data
	return f
}

// A super-frame of packets that belong to no connection leaves whole, unless a rule is about requests
// to their receiver: to queue its frames is no such rule. The switch looks at each packet of another
// super-frame, so that it misses no packet of a connection and no datagram of the connection manager.
func TestUnconnectedSuperFramesLeaveWhole(t *testing.T) {
	queued := rules.Rule{Server: benchIP(benchServer), Action: packetbuffer.Buffer, Service: "memory", Options: map[string]string{"ring": benchIP(2).String(), "rate": "1Gbit"}}
	send := wire.RCSendOnly | wire.ServiceUC
	uc := []wire.Opcode{send, send, send}
	ud := []wire.Opcode{wire.UDSendOnly, wire.UDSendOnly}
	for name, c := range map[string]struct {
		rule  *rules.Rule
		qp    wire.QPN
		ops   []wire.Opcode
		whole bool
	}{
		"UC":                          {nil, 9, uc, true},
		"UD":                          {nil, 9, ud, true},
		"UC, queued":                  {&queued, 9, uc, true},
		"UC to the CM's number":       {nil, 1, uc, true},
		"the CM's datagrams":          {nil, 1, ud, false},
		"RC behind UC":                {nil, 9, []wire.Opcode{send, wire.RCSendOnly}, false},
		"an unknown operation":        {nil, 9, []wire.Opcode{send, wire.ServiceUC | 0x1f}, false},
		"RC of no connection":         {nil, 9, []wire.Opcode{wire.RCSendOnly, wire.RCSendOnly}, false},
		"UC, requests are moved":      {&rules.Rule{Server: benchIP(benchServer), Action: rules.Move}, 9, uc, false},
		"UC, requests are counted":    {&rules.Rule{Server: benchIP(benchServer), Action: hotwords.Count}, 9, uc, false},
		"UC, requests to another one": {&rules.Rule{Server: benchIP(3), Action: rules.Move}, 9, uc, true},
	} {
		var list []rules.Rule
		if c.rule != nil {
			list = append(list, *c.rule)
		}
		set, err := rules.NewSet(list)
		if err != nil {
			t.Fatal(err)
		}
		b := newBench(t, swordbox.New(swordbox.Config{
			Rules: set, Own: own(t), Track: conntrack.Config{Settle: -1},
			Handlers: []handler.Handler{serialize.New(serialize.Config{}), hotwords.New(), packetbuffer.Kind.New(&handler.Env{})},
		}))
		want := len(c.ops)
		if c.whole {
			want = 1
		}
		if n := b.left(1, superOf(c.qp, c.ops...)); n != want {
			t.Errorf("%s: %d frames leave, want %d", name, n, want)
		}
	}
}

package simrack

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/capture/conform"
	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/capture/flows"
	"github.com/rdmalab/rdmalab/softrnic/capture/ladder"
	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
)

// tape records the packets of a rack as a capture, each when it enters a link or is lost.
type tape struct {
	t     *testing.T
	w     *pcapng.Writer
	links map[string]int
}

func tapeTo(t *testing.T, out io.Writer) *tape {
	w, err := pcapng.NewWriter(out)
	check(t, err)
	return &tape{t: t, w: w, links: map[string]int{}}
}

func (p *tape) add(ev *simnet.Event) {
	if ev.Kind == simnet.Delivered || ev.Kind == simnet.Corrupted || ev.Kind == simnet.Duplicated {
		return
	}
	name := ev.Link() + "-" + string(ev.Dir())
	id, ok := p.links[name]
	if !ok {
		var err error
		id, err = p.w.AddInterface(name, pcapng.Ethernet)
		check(p.t, err)
		p.links[name] = id
	}
	comment := ""
	if ev.Kind != simnet.Sent {
		comment = ev.Kind.String()
	}
	if ev.OnTheWay {
		comment += " " + flows.OnTheWay
	}
	if len(ev.Rules) > 0 {
		comment = strings.TrimSpace(comment + " fault " + strings.Join(ev.Rules, ","))
	}
	check(p.t, p.w.WritePacket(id, int64(ev.At), ev.Frame, comment))
}

// check holds the capture against the rules of the protocol and draws it. Packets were lost, so some must have been sent
// again because of a loss that the drawing names.
func (p *tape) check(file *bytes.Buffer) {
	p.t.Helper()
	check(p.t, p.w.Flush())
	var b flows.Book
	m := ladder.New()
	each := func(r *dump.Record) error {
		if err := b.Add(r); err != nil {
			return err
		}
		return m.Add(r)
	}
	d, err := dump.New(io.Discard, dump.Config{Each: each})
	check(p.t, err)
	check(p.t, d.Dump("", file))
	b.Sort()
	for _, v := range conform.Check(&b) {
		p.t.Errorf("packet %d, %v: %s: %s", v.Packet.Number, &v.Packet.Header, v.Rule.Name, v.Why)
	}
	requests, answers := 0, 0
	for i := range m.Rows() {
		switch r := &m.Rows()[i]; {
		case r.Resend.Gone == 0:
		case r.Resend.Why == ladder.Repeated:
			answers++
		default:
			requests++
		}
	}
	if requests == 0 || answers == 0 {
		p.t.Errorf("%d requests and %d answers are drawn as sent again after a loss", requests, answers)
	}
}

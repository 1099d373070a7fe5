package simrack

import (
	"bytes"
	"io"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/capture/conform"
	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/capture/flows"
	"github.com/rdmalab/rdmalab/softrnic/capture/ladder"
)

// checkRecord holds the capture against the rules of the protocol and draws it. Packets were lost, so some must have been sent
// again because of a loss that the drawing names.
func checkRecord(t *testing.T, file *bytes.Buffer) {
	t.Helper()
	var b flows.Book
	m := ladder.New()
	each := func(r *dump.Record) error {
		if err := b.Add(r); err != nil {
			return err
		}
		return m.Add(r)
	}
	d, err := dump.New(io.Discard, dump.Config{Each: each})
	check(t, err)
	check(t, d.Dump("", file))
	b.Sort()
	for _, v := range conform.Check(&b) {
		t.Errorf("packet %d, %v: %s: %s", v.Packet.Number, &v.Packet.Header, v.Rule.Name, v.Why)
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
		t.Errorf("%d requests and %d answers are drawn as sent again after a loss", requests, answers)
	}
}

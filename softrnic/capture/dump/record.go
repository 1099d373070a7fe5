package dump

import (
	"bytes"
	"errors"

	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Verdict is the result of the checks of a packet.
type Verdict string

// Verdicts.
const (
	Other     Verdict = "other"     // not RoCEv2
	OK        Verdict = "ok"        // well-formed, with the right ICRC
	BadICRC   Verdict = "bad"       // well-formed, with a wrong ICRC
	Cut       Verdict = "cut"       // not captured completely: its ICRC is unknown, and it may be malformed
	Malformed Verdict = "malformed" // RoCEv2 that cannot be parsed; Record.Err says why
)

// Record is one decoded packet.
type Record struct {
	pcapng.Packet
	// Frame is the decoded frame; for Malformed, the part before the error.
	Frame   wire.Frame
	Verdict Verdict
	// Err is the *wire.FormatError of a malformed packet.
	Err error
	// Dispute is the error of Config.Verify, a difference between the two decoders; nil means none.
	Dispute error
}

// decode parses r.Packet.
func (r *Record) decode() {
	data := r.Data
	cut := len(data) < r.OrigLen
	if cut {
		// Zeros replace the bytes that were not captured, so that the frame has the length in its
		// headers.
		data = append(bytes.Clone(data), make([]byte, min(r.OrigLen, pcapng.MaxPacket)-len(data))...)
	}
	r.Err = wire.ParseFrame(data, &r.Frame)
	switch {
	case errors.Is(r.Err, wire.ErrNotRoCE):
		r.Verdict, r.Err = Other, nil
	case cut:
		r.Verdict, r.Err = Cut, nil
	case r.Err != nil:
		r.Verdict = Malformed
	case wire.CheckICRC(data):
		r.Verdict = OK
	default:
		r.Verdict = BadICRC
	}
}

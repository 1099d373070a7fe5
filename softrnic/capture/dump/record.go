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
	Cut       Verdict = "cut"       // not captured completely: its ICRC is unknown, and what was captured is not malformed
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

func (r *Record) decode() {
	data := r.Data
	cut := len(data) < r.OrigLen
	if cut {
		data = r.filled(0)
	}
	r.Err = wire.ParseFrame(data, &r.Frame)
	switch {
	case errors.Is(r.Err, wire.ErrNotRoCE):
		r.Verdict, r.Err = Other, nil
	case cut && (r.Err == nil || !r.certain()):
		r.Verdict, r.Err = Cut, nil
	case r.Err != nil:
		r.Verdict = Malformed
	case wire.CheckICRC(data):
		r.Verdict = OK
	default:
		r.Verdict = BadICRC
	}
}

// filled returns the frame at its original length, at most pcapng.MaxPacket: the bytes that were
// not captured have the value b.
func (r *Record) filled(b byte) []byte {
	rest := bytes.Repeat([]byte{b}, max(0, min(r.OrigLen, pcapng.MaxPacket)-len(r.Data)))
	return append(bytes.Clone(r.Data), rest...)
}

// certain reports whether the error of a frame that was captured in part is in the captured bytes.
// If so, the frame has the same error whatever the other bytes are.
func (r *Record) certain() bool {
	var f wire.Frame
	err := wire.ParseFrame(r.filled(0xff), &f)
	return err != nil && err.Error() == r.Err.Error()
}

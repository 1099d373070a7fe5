package simrack

import (
	"io"
	"strings"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/capture/flows"
	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
)

// Recorder writes a frame to a capture when the frame enters a link or is lost; a frame that is lost
// after it has entered the link is there twice, which the comment of the second one says. Each direction of a
// link is an interface of the capture. Times are virtual and begin at the Unix epoch.
type Recorder struct {
	w          *pcapng.Writer
	interfaces map[string]int
	err        error
}

// NewRecorder returns a Recorder that writes a pcapng file to w.
func NewRecorder(w io.Writer) (*Recorder, error) {
	pw, err := pcapng.NewWriter(w)
	return &Recorder{w: pw, interfaces: make(map[string]int)}, err
}

// Record writes what ev is about. After an error, which Close returns, it writes nothing.
func (r *Recorder) Record(ev *simnet.Event) {
	if r.err != nil || ev.Kind == simnet.Delivered || ev.Kind == simnet.Corrupted || ev.Kind == simnet.Duplicated {
		return // the capture has this frame already, as it entered the link
	}
	name := ev.Link() + "-" + string(ev.Dir())
	id, ok := r.interfaces[name]
	if !ok {
		if id, r.err = r.w.AddInterface(name, pcapng.Ethernet); r.err != nil {
			return
		}
		r.interfaces[name] = id
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
	r.err = r.w.WritePacket(id, int64(ev.At), ev.Frame, comment)
}

// Close writes what is buffered, and returns the first error.
func (r *Recorder) Close() error {
	if r.err != nil {
		return r.err
	}
	return r.w.Flush()
}

package scenario

import (
	"io"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/topo/sim"
)

// recorder writes a frame to a capture when the frame enters a link or is lost. Each direction of a
// link is an interface of the capture. Times are virtual and begin at the Unix epoch.
type recorder struct {
	w          *pcapng.Writer
	interfaces map[string]int
	err        error
}

func newRecorder(w io.Writer) (*recorder, error) {
	pw, err := pcapng.NewWriter(w)
	return &recorder{w: pw, interfaces: make(map[string]int)}, err
}

func (r *recorder) record(ev *sim.Event) {
	if r.err != nil || ev.Kind == sim.Delivered || ev.Kind == sim.Corrupted || ev.Kind == sim.Duplicated {
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
	if ev.Kind != sim.Sent {
		comment = ev.Kind.String()
	}
	if len(ev.Rules) > 0 {
		comment = strings.TrimSpace(comment + " fault " + strings.Join(ev.Rules, ","))
	}
	r.err = r.w.WritePacket(id, int64(ev.At), ev.Frame, comment)
}

func (r *recorder) close() error {
	if r.err != nil {
		return r.err
	}
	return r.w.Flush()
}

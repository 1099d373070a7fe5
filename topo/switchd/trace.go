package switchd

import (
	"net/http"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/pathtrace"
)

// record records that packets pass point p at a port, if an operator has asked for a trace that
// includes the port.
func (t *traffic) record(p pathtrace.Point, port int) {
	if t.ring != nil && (len(t.traced) == 0 || slices.Contains(t.traced, port)) {
		t.ring.Add(t.clk.Monotonic(t.clk.Now()), p, port)
	}
}

func (d *Daemon) handleTrace(m *control.Mux) {
	control.Handle(m, "POST /trace", func(_ *http.Request, r pathtrace.Request) (none, error) {
		if err := r.Check(); err != nil {
			return none{}, control.Errorf(http.StatusBadRequest, "%v", err)
		}
		ring := pathtrace.NewRing(r.Events)
		err := d.commands.Try(func() error {
			var traced []int
			for _, name := range r.Ports {
				i, err := d.ports.of(name)
				if err != nil {
					return err
				}
				if !slices.Contains(traced, i) {
					traced = append(traced, i)
				}
			}
			d.traffic.ring, d.traffic.traced = ring, traced
			return nil
		})
		return none{}, answer(err)
	})
	control.Handle(m, "DELETE /trace", func(*http.Request, none) (list pathtrace.Trace, err error) {
		err = d.commands.Do(func() {
			list = d.traffic.ring.Trace()
			list.Ports = slices.Clone(d.ports.hosts)
			d.traffic.ring = nil
		})
		return list, answer(err)
	})
}

package switchd

import (
	"errors"
	"net/http"
	"slices"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// hostControl makes the switch follow the rack's description, to which hosts are added and from which
// they are removed while the switch runs.
type hostControl struct {
	guests   *guestControl
	programs *programControl
	describe func() (*rackfile.Rack, error) // Config.Describe
	links    func(r *rackfile.Rack) []Link  // Config.HostLinks
	homes    *pipeline.Homes                // of the switch; nil if its hosts are not described
}

func (h *hostControl) handle(m *control.Mux) {
	control.Handle(m, "POST /rack", func(*http.Request, none) (none, error) { return none{}, answer(h.reload()) })
}

// reload reads the rack's description again. It removes the ports of hosts that are gone, and adds
// those of new hosts, whose interfaces must exist. It returns when these ports are open. If a port
// cannot be opened, the others are, and a further reload tries again. A trunk whose ends have other
// addresses is opened again soon, and reload does not wait for it.
func (h *hostControl) reload() error {
	if h.describe == nil {
		return control.Errorf(http.StatusConflict, "this switch has no description to read")
	}
	h.programs.loading.Lock() // no program may be made from the former description meanwhile
	defer h.programs.loading.Unlock()
	rack, err := h.describe()
	if err != nil {
		return err
	}
	want := h.links(rack)
	var have []Link
	if err := h.guests.commands.Do(func() {
		h.guests.ports.readdress(want)
		for _, l := range h.guests.ports.links {
			if l.Host != "" && !l.Guest {
				have = append(have, l)
			}
		}
	}); err != nil {
		return err
	}
	var errs []error
	for _, l := range have {
		if !slices.Contains(want, l) {
			errs = append(errs, h.guests.unplug(l.Host, false))
		}
	}
	for _, l := range want {
		if !slices.Contains(have, l) {
			errs = append(errs, h.guests.plug(l))
		}
	}
	h.programs.described.Store(rack)
	errs = append(errs, h.guests.commands.Do(func() {
		if w := h.programs.where; w != nil {
			w.Move(h.programs.running, rack, h.port)
			h.homes.Set(w.Places())
		}
		if h.guests.ports.trunks != nil {
			h.guests.faults.regroup() // hosts behind other switches have come or gone
		}
	}))
	return errors.Join(errs...)
}

// port returns the number of the port of a host or another switch, and -1 if it has none. Only the loop
// calls it.
func (h *hostControl) port(node string) int {
	if t := h.guests.ports.trunks; t != nil && elsewhere(t.described(), node) {
		return t.first()
	}
	return slices.Index(h.guests.ports.hosts, node)
}

// elsewhere reports whether trunks lead to a node: it is another switch than the one that rack describes,
// or a host at another one.
func elsewhere(rack *rackfile.Rack, node string) bool {
	if h, _, ok := rack.Host(node); ok {
		return rack.LeafOf(h) != rack.Switch.Name
	}
	return rack.IsSwitch(node) && node != rack.Switch.Name
}

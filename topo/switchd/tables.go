package switchd

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/swordbox/apps"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Names of the switch's own tables.
const (
	tableMACs   = "macs"
	tableFlows  = "flows"
	tableGroups = "groups"
)

// Dropped is the answer to a request that clears a table: how many entries the switch removed.
type Dropped struct {
	Entries int `json:"entries"`
}

// MAC is a learnt address with the name of the host at its port.
type MAC struct {
	pipeline.MAC
	Host string `json:"host"`
}

// Snooping is the answer to GET /groups.
type Snooping struct {
	pipeline.Snooping
	// Hosts names the host at each port, in the order of the ports' numbers; "" means that the
	// guest at the port was removed.
	Hosts []string `json:"hosts"`
}

func (p *programControl) handleTables(m *control.Mux) {
	control.Handle(m, "GET /tables", func(*http.Request, none) ([]handler.Table, error) { return p.Tables() })
	control.Handle(m, "DELETE /tables/{name}", func(r *http.Request, _ none) (Dropped, error) {
		n, err := p.ClearTable(r.PathValue("name"))
		return Dropped{n}, answer(err)
	})
	control.Handle(m, "GET /macs", func(*http.Request, none) ([]MAC, error) {
		list := []MAC{}
		err := p.commands.Do(func() {
			for _, x := range p.traffic.sw.MACs() {
				list = append(list, MAC{x, p.traffic.ports.hosts[x.Port]})
			}
		})
		return list, err
	})
	control.Handle(m, "GET /groups", func(*http.Request, none) (s Snooping, err error) {
		err = p.commands.Do(func() { s = Snooping{p.traffic.sw.Snooping(p.traffic.now), slices.Clone(p.traffic.ports.hosts)} })
		return s, err
	})
}

// Tables lists the tables of the switch and its program, and how full they are.
func (p *programControl) Tables() (list []handler.Table, err error) {
	err = p.commands.Do(func() {
		sw := p.traffic.sw
		c, _ := sw.Counters()
		macs, flows := sw.Bounds()
		list = []handler.Table{
			{Name: tableMACs, Doc: "where addresses were last seen", Used: c.MACs, Max: macs, Clear: true},
			{Name: tableFlows, Doc: "packets by source, destination, queue pair", Used: c.Flows, Max: flows, Clear: true},
			{Name: tableGroups, Doc: "multicast groups and the ports that want them", Used: c.Groups, Max: pipeline.MaxGroups, Clear: true},
		}
		if r, ok := p.running.(apps.Ruled); ok {
			list = append(list, r.Tables(p.traffic.now)...)
		}
	})
	return list, err
}

// ClearTable empties a table and returns how many entries it had.
func (p *programControl) ClearTable(name string) (n int, err error) {
	switch name {
	case tableMACs:
		return n, p.commands.Do(func() { n = p.traffic.sw.ForgetMACs() })
	case tableFlows:
		return n, p.commands.Do(func() { n = p.traffic.sw.ForgetFlows() })
	case tableGroups:
		return n, p.commands.Do(func() { n = p.traffic.sw.ForgetGroups() })
	}
	err = p.ruled(func(r apps.Ruled) error {
		var ok bool
		if n, ok = r.ClearTable(name); ok {
			return nil
		}
		names := []string{tableMACs, tableFlows, tableGroups}
		for _, t := range r.Tables(p.traffic.now) {
			if t.Clear {
				names = append(names, t.Name)
			}
		}
		return handler.Gone(fmt.Errorf("there is no table %.40q that can be cleared; %suse one of %s", name, nearest.Meant(name, names), strings.Join(names, ", ")))
	})
	return n, err
}

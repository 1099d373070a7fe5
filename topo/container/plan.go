package container

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/rackfile"
)

// Plug is a way in which a host's container gets its NIC.
type Plug string

// The plugs. The package comment explains them.
const (
	PlugOutside Plug = "outside"
	PlugHolder  Plug = "holder"
	PlugDriver  Plug = "driver"
)

func Plugs() []Plug { return []Plug{PlugOutside, PlugHolder, PlugDriver} }

func ParsePlug(s string) (Plug, error) {
	if slices.Contains(Plugs(), Plug(s)) {
		return Plug(s), nil
	}
	return "", fmt.Errorf("plug %.40q is unknown; %suse one of %v", s, nearest.Meant(s, Plugs()), Plugs())
}

// Hidden commands of this program, which are process 1 of containers: InitCommand starts the daemon
// of a host, HoldCommand only waits and so holds a host's network.
const (
	InitCommand = "container-init"
	HoldCommand = "container-hold"
)

// capabilities lists the capabilities of each container. The host's daemon needs them for packet
// sockets, for its interface, and for the locked memory of NICs.
var capabilities = []string{"NET_RAW", "NET_ADMIN", "IPC_LOCK"}

// unit describes one container, for compose and for the engine's API.
type unit struct {
	Name, Host, Part string
	Plug             Plug
	Command          []string
	// Hostname is the host name of the container. It is "" if the container shares the network, and
	// so the host name, of another one.
	Hostname string
	// With is the container whose network this one shares; "" means none.
	With string
	// Network is the network that is the container's link; "" means that there is none.
	Network string
	Mounts  []mount
}

type mount struct {
	Source, Target string
	ReadOnly       bool
}

// linkNet is a network of the engine that the rack's network driver makes: the link of one host.
type linkNet struct{ Name, Host string }

func ContainerName(rack, host string) string { return "rdmalab-" + rack + "-" + host }

// holderName returns the name of the container that holds a host's network. It is not the
// ContainerName of any host of the rack, because host names have no dot.
func holderName(rack, host string) string { return ContainerName(rack, host) + ".net" }

func linkNetName(rack, host string) string { return "rdmalab-" + rack + "-" + host }

func DriverName(rack string) string { return "rdmalab-" + rack }

// units lists the containers of a host, in the order in which they start.
func units(r *rackfile.Rack, host string, plug Plug) []unit {
	app := unit{
		Name: ContainerName(r.Name, host), Host: host, Part: PartHost, Plug: plug, Hostname: host,
		Command: []string{InitCommand, "--rack-dir", rackfile.PathsOf(r.Name).Dir, "--name", host},
		Mounts:  mounts(r, host),
	}
	switch plug {
	case PlugHolder:
		hold := unit{Name: holderName(r.Name, host), Host: host, Part: PartHolder, Plug: plug, Hostname: host, Command: []string{HoldCommand}}
		app.With, app.Hostname = hold.Name, ""
		return []unit{hold, app}
	case PlugDriver:
		app.Network = linkNetName(r.Name, host)
	case PlugOutside: // the container has no network
	}
	return []unit{app}
}

// mounts lists the parts of the rack's state folder that the container of a host sees. They are the
// same for all hosts.
func mounts(r *rackfile.Rack, host string) []mount {
	p := rackfile.PathsOf(r.Name)
	return []mount{
		{p.Spec(), p.Spec(), true},
		{filepath.Dir(p.Socket(host)), filepath.Dir(p.Socket(host)), false},
		{filepath.Dir(p.Log(host)), filepath.Dir(p.Log(host)), false},
		{p.Hosts(), "/etc/hosts", true},
	}
}

// linkNets lists the networks that are links of a rack; none unless plug is PlugDriver.
func linkNets(r *rackfile.Rack, plug Plug) []linkNet {
	var list []linkNet
	for _, host := range r.HostNames() {
		if plug == PlugDriver {
			list = append(list, linkNet{linkNetName(r.Name, host), host})
		}
	}
	return list
}

func (u *unit) labels(rack string) map[string]string {
	return map[string]string{LabelRack: rack, LabelHost: u.Host, LabelPart: u.Part, LabelPlug: string(u.Plug)}
}

// object is a JSON object of a request to the engine.
type object = map[string]any

func (u *unit) body(rack, image string) object {
	mode := "none"
	switch {
	case u.With != "":
		mode = "container:" + u.With
	case u.Network != "":
		mode = u.Network
	}
	mounts := []object{}
	for _, m := range u.Mounts {
		mounts = append(mounts, object{"Type": "bind", "Source": m.Source, "Target": m.Target, "ReadOnly": m.ReadOnly})
	}
	c := object{
		"Image": image, "Cmd": u.Command, "Labels": u.labels(rack),
		"HostConfig": object{
			"NetworkMode": mode, "CapDrop": []string{"ALL"}, "CapAdd": capabilities, "ReadonlyRootfs": true,
			"Tmpfs": object{"/tmp": ""}, "Mounts": mounts, "RestartPolicy": object{"Name": "no"},
		},
	}
	if u.Hostname != "" {
		c["Hostname"] = u.Hostname
	}
	return c
}

func (c linkNet) body(rack string) object {
	return object{
		"Name": c.Name, "CheckDuplicate": true, "Driver": DriverName(rack), "IPAM": object{"Driver": "null"},
		"Options": object{LabelHost: c.Host}, "Labels": object{LabelRack: rack, LabelHost: c.Host},
	}
}

// Compose returns a compose file with the containers of a rack, for docker compose 2 and
// docker-compose 1.29. The text does not depend on the machine. from is the name of the rack's
// description, for a comment.
func Compose(r *rackfile.Rack, plug Plug, from string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# The hosts of the rack %q as containers, made by `rdmalab compose` from %s.\n", r.Name, from)
	fmt.Fprintf(&b, "# `rdmalab up --compose THIS_FILE` makes the switch and the links, runs compose, and waits for the hosts;\n")
	fmt.Fprintf(&b, "# `rdmalab down` takes all of it away. The image is made by `rdmalab image`.\n")
	writeCommon(&b, "host", mounts(r, r.Hosts[0].Name))
	if plug == PlugHolder {
		writeCommon(&b, "holder", nil)
	}
	b.WriteString("services:\n")
	for _, host := range r.HostNames() {
		for _, u := range units(r, host, plug) {
			u.write(&b, r.Name)
		}
	}
	list := linkNets(r, plug)
	if len(list) == 0 {
		return b.String()
	}
	b.WriteString("networks:               # a network of this driver is the link of a host: disconnecting it cuts the link\n")
	for _, c := range list {
		fmt.Fprintf(&b, "  %s:\n    name: %s\n    driver: %s\n    driver_opts: {%s: %s}\n    ipam: {driver: \"null\"}\n    labels: {%s: %q, %s: %q}\n",
			c.Host, c.Name, DriverName(r.Name), LabelHost, c.Host, LabelRack, r.Name, LabelHost, c.Host)
	}
	return b.String()
}

// writeCommon writes, as a YAML anchor, the part that all services have in common.
func writeCommon(b *strings.Builder, anchor string, mounts []mount) {
	fmt.Fprintf(b, "x-%s: &%s\n  image: %s\n  cap_drop: [ALL]\n  cap_add: [%s]\n  read_only: true\n  tmpfs: [/tmp]\n",
		anchor, anchor, ImageName, strings.Join(capabilities, ", "))
	b.WriteString("  stop_grace_period: 1s\n  restart: \"no\"         # restarts are faults, and the rack's to decide\n")
	if len(mounts) > 0 {
		b.WriteString("  volumes:\n")
	}
	for _, m := range mounts {
		fmt.Fprintf(b, "    - {type: bind, source: %s, target: %s, read_only: %v}\n", m.Source, m.Target, m.ReadOnly)
	}
}

func (u *unit) service() string {
	if u.Part == PartHolder {
		return u.Host + ".net" // no host has this name, because host names have no dot
	}
	return u.Host
}

func (u *unit) write(b *strings.Builder, rack string) {
	common := "host"
	if u.Part == PartHolder {
		common = "holder"
	}
	fmt.Fprintf(b, "  %s:\n    <<: *%s\n    container_name: %s\n", u.service(), common, u.Name)
	if u.Hostname != "" {
		fmt.Fprintf(b, "    hostname: %s\n", u.Hostname)
	}
	switch {
	case u.With != "":
		holder := unit{Host: u.Host, Part: PartHolder}
		fmt.Fprintf(b, "    network_mode: \"service:%s\"\n    depends_on: [%s]\n", holder.service(), holder.service())
	case u.Network != "":
		fmt.Fprintf(b, "    networks: [%s]\n", u.Host)
	default:
		b.WriteString("    network_mode: none\n")
	}
	fmt.Fprintf(b, "    labels: {%s: %q, %s: %q, %s: %s, %s: %s}\n", LabelRack, rack, LabelHost, u.Host, LabelPart, u.Part, LabelPlug, u.Plug)
	fmt.Fprintf(b, "    command: [%s]\n", strings.Join(u.Command, ", "))
}

// Package cni is the CNI plugin that is chained behind a cluster's own. It acts on Pods by their annotations, which
// the runtime passes (capability io.kubernetes.cri.pod-annotations), and passes the result of the plugins before it on:
//
//   - rdmalab.io/switch: the Pod is the leaf of a rack of its namespace on this node.
//   - rdmalab.io/link: the Pod is a host of such a rack: it gets a link to the leaf, with an interface of its own name.
//   - rdmalab.io/rack alone: the Pod uses the NIC of a host on this node: it finds the host's sockets.
//
// It connects to no API server. Of the kubelet it asks which device a Pod has. The same folder is then mounted over
// those of the devices of a host and of its user.
package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/rdmalab/rdmalab/kube/node"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// Program is the plugin's name: that of its file, and the type of its entry in a conflist.
const Program = "rdmalab-kube-cni"

// Capability is that by which the plugin gets the Pod's annotations.
const Capability = "io.kubernetes.cri.pod-annotations"

// The annotations, as in api/v1alpha1, which would bring the libraries of Kubernetes into the plugin.
const (
	annotationSwitch = "rdmalab.io/switch"
	annotationUsers  = "rdmalab.io/users"
	annotationRack   = "rdmalab.io/rack"
	annotationHost   = "rdmalab.io/host"
	annotationLink   = "rdmalab.io/link"
)

// config is the entry of the conflist, with what the runtime adds.
type config struct {
	types.NetConf
	// State is the folder of the node's state; "" means node.Root.
	State string `json:"state,omitempty"`
	// Kubelet is the kubelet's socket of PodResources; "" means the usual one.
	Kubelet       string `json:"kubelet,omitempty"`
	RuntimeConfig struct {
		Annotations map[string]string `json:"io.kubernetes.cri.pod-annotations"`
	} `json:"runtimeConfig"`
}

// podArgs has the keys of CNI_ARGS by which runtimes name the Pod.
type podArgs struct {
	types.CommonArgs
	K8S_POD_NAME      types.UnmarshallableString //nolint:revive // the library takes the names of the fields
	K8S_POD_NAMESPACE types.UnmarshallableString //nolint:revive // as above
}

// Main runs the plugin, and returns its exit status.
func Main() int {
	funcs := skel.CNIFuncs{Add: add, Del: del, Check: check, Status: func(*skel.CmdArgs) error { return nil }, GC: func(*skel.CmdArgs) error { return nil }}
	if e := skel.PluginMainFuncsWithError(funcs, version.All, "rdmalab: connects Pods to the racks of their node, chained behind the cluster's plugins"); e != nil {
		if err := e.Print(); err != nil {
			fmt.Fprintln(os.Stderr, Program+":", e, err)
		}
		return 1
	}
	return 0
}

// parse reads the entry and the result of the plugins before this one.
func parse(a *skel.CmdArgs) (*config, error) {
	c := new(config)
	if err := json.Unmarshal(a.StdinData, c); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "the configuration is no JSON of this plugin", err.Error())
	}
	if c.State == "" {
		c.State = node.Root
	}
	if err := version.ParsePrevResult(&c.NetConf); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "prevResult", err.Error())
	}
	return c, nil
}

// pod is what a call says of the Pod.
type pod struct {
	namespace, name, container, netns string
	annotations                       map[string]string
}

func (c *config) pod(a *skel.CmdArgs) (pod, error) {
	var args podArgs
	if err := types.LoadArgs(a.Args, &args); err != nil {
		return pod{}, types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_ARGS", err.Error())
	}
	return pod{string(args.K8S_POD_NAMESPACE), string(args.K8S_POD_NAME), a.ContainerID, a.Netns, c.RuntimeConfig.Annotations}, nil
}

// record begins the record of a Pod.
func (p *pod) record(slot string) node.Record {
	return node.Record{Container: p.container, Netns: p.netns, Slot: slot, Pod: p.namespace + "/" + p.name}
}

// resource returns what the Pod must have a device of: a leaf or a host writes in the folder of its device, and a user
// does not.
func (p *pod) resource() string {
	if p.annotations[annotationSwitch] != "" || p.annotations[annotationLink] != "" {
		return resourcePort
	}
	return resourceNIC
}

func add(a *skel.CmdArgs) error {
	c, err := parse(a)
	if err != nil {
		return err
	}
	if c.PrevResult == nil {
		return types.NewError(types.ErrInvalidNetworkConfig, "prevResult is missing", Program+" is chained behind the plugin that gives Pods their network: put its entry last in the list")
	}
	p, err := c.pod(a)
	if err != nil {
		return err
	}
	var link *node.Link
	if p.annotations[annotationSwitch] != "" || p.annotations[annotationRack] != "" {
		s := state{State: node.State(c.State), slotOf: kubelet{c.Kubelet}.slot}
		if link, err = s.add(&p); err != nil {
			return coded(err)
		}
	}
	res, err := current.NewResultFromResult(c.PrevResult)
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, "prevResult", err.Error())
	}
	appendTo(res, link, a.Netns)
	if err := types.PrintResult(res, c.CNIVersion); err != nil {
		return types.NewError(types.ErrIncompatibleCNIVersion, "result", err.Error())
	}
	return nil
}

// appendTo adds the interface of a host to the result.
func appendTo(res *current.Result, link *node.Link, netns string) {
	if link == nil {
		return
	}
	at := len(res.Interfaces)
	res.Interfaces = append(res.Interfaces, &current.Interface{Name: link.Ifname, Mac: link.MAC, Mtu: link.MTU, Sandbox: netns})
	for _, p := range link.Addresses {
		res.IPs = append(res.IPs, &current.IPConfig{Interface: current.Int(at), Address: ipNet(p)})
	}
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// del removes what add has made. It finds it by the container, so that it also does so without annotations.
func del(a *skel.CmdArgs) error {
	c, err := parse(a)
	if err != nil {
		return err
	}
	if _, err := os.Stat(c.State); errors.Is(err, os.ErrNotExist) {
		return nil // no Pod of this node had to do with a rack
	}
	s := state{State: node.State(c.State)}
	return coded(s.remove(a.ContainerID))
}

// check returns an error if the interface of a host is gone.
func check(a *skel.CmdArgs) error {
	c, err := parse(a)
	if err != nil {
		return err
	}
	text := c.RuntimeConfig.Annotations[annotationLink]
	if text == "" {
		return nil
	}
	l, err := parseLink(text)
	if err != nil {
		return coded(err)
	}
	if _, err := nl.LinkByName(a.Netns, l.Ifname); err != nil {
		return coded(err)
	}
	return nil
}

// errAgain says that the runtime shall try again: something of the rack is not there yet.
var errAgain = errors.New("try again")

// errRefused says that the Pod asks for what it cannot have.
var errRefused = errors.New("refused")

// codeRefused is beyond the codes of the specification.
const codeRefused = 100

func coded(err error) error {
	var known *types.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case errors.Is(err, errAgain):
		return types.NewError(types.ErrTryAgainLater, err.Error(), "")
	case errors.Is(err, errRefused):
		return types.NewError(codeRefused, err.Error(), "")
	}
	return types.NewError(types.ErrInternal, err.Error(), "")
}

// rackOf splits the annotation of a user's Pod, NAMESPACE/NAME or NAME.
func rackOf(text, namespace string) (string, string, error) {
	ns, name, ok := strings.Cut(text, "/")
	if !ok {
		ns, name = namespace, text
	}
	if !isName(ns) || !isName(name) {
		return "", "", fmt.Errorf("%w: annotation %s: %.80q is no NAMESPACE/NAME of a Rack", errRefused, annotationRack, text)
	}
	return ns, name, nil
}

// isName reports whether a text is a name of Kubernetes (RFC 1123), so that it is no path.
func isName(s string) bool {
	if s == "" || len(s) > 63 {
		return false
	}
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

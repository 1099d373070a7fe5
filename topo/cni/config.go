package cni

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/rack"
)

// Config is the plugin's section of the network's configuration.
type Config struct {
	types.NetConf
	// Rack names the rack; "" means the rack "default".
	Rack string `json:"rack"`
	// RuntimeConfig has the values that the runtime adds for the plugin's capabilities.
	RuntimeConfig struct {
		MAC string `json:"mac"`
	} `json:"runtimeConfig"`
}

// arguments has the keys of CNI_ARGS that the plugin knows; the library takes the names of the
// fields as keys.
type arguments struct {
	types.CommonArgs
	// HOST is the guest's name. MAC is its address.
	HOST, MAC types.UnmarshallableString
	// K8S_POD_NAME is the name that podman and Kubernetes give the container or pod.
	K8S_POD_NAME types.UnmarshallableString //nolint:revive // as above
}

func parseConfig(stdin []byte) (*Config, error) {
	c := new(Config)
	if err := json.Unmarshal(stdin, c); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "the network's configuration is no JSON of this plugin", err.Error())
	}
	c.Rack = cmp.Or(c.Rack, rackfile.DefaultName)
	if err := rackfile.CheckName(c.Rack); err != nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "key rack of the network's configuration", err.Error())
	}
	if c.IPAM.Type != "" {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "key ipam of the network's configuration",
			fmt.Sprintf("the rack gives the addresses; remove the section of type %.40q", c.IPAM.Type))
	}
	return c, nil
}

func (c *Config) request(a *skel.CmdArgs) (rack.GuestRequest, error) {
	q := rack.GuestRequest{Network: c.Name, Container: a.ContainerID, Ifname: a.IfName, Netns: a.Netns}
	var known arguments
	if err := types.LoadArgs(a.Args, &known); err != nil {
		return q, types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_ARGS", err.Error()+"; IgnoreUnknown=1 passes over the keys of others")
	}
	q.Name, q.Suggested = string(known.HOST), string(known.K8S_POD_NAME)
	if q.Name != "" {
		if err := rackfile.CheckHostName(q.Name); err != nil {
			return q, types.NewError(types.ErrInvalidEnvironmentVariables, "HOST of CNI_ARGS", err.Error())
		}
	}
	mac := c.RuntimeConfig.MAC
	if mac == "" {
		mac = string(known.MAC)
	}
	if mac == "" {
		return q, nil
	}
	var err error
	if q.MAC, err = wire.ParseMAC(mac); err == nil && !rackfile.IsStation(q.MAC) {
		err = fmt.Errorf("%s is a group address or zero", mac)
	}
	if err != nil {
		return q, types.NewError(types.ErrInvalidNetworkConfig, "MAC address of the container", err.Error())
	}
	return q, nil
}

package cni

import (
	"encoding/json"

	"github.com/containernetworking/cni/pkg/utils"

	"github.com/rdmalab/rdmalab/rackfile"
)

// confVersion is the version of the specification in the file. podman 4, nerdctl and Kubernetes
// understand it; podman 4 does not understand 1.1.0, which the plugin supports, too.
const confVersion = "1.0.0"

// ConfList returns the configuration file of a network whose containers join a rack.
func ConfList(network, rack string) ([]byte, error) {
	if err := utils.ValidateNetworkName(network); err != nil {
		return nil, err
	}
	if err := rackfile.CheckName(rack); err != nil {
		return nil, err
	}
	type plugin struct {
		Type         string          `json:"type"`
		Rack         string          `json:"rack"`
		Capabilities map[string]bool `json:"capabilities"`
	}
	b, err := json.MarshalIndent(struct {
		Version string   `json:"cniVersion"`
		Name    string   `json:"name"`
		Plugins []plugin `json:"plugins"`
	}{confVersion, network, []plugin{{Program, rack, map[string]bool{"mac": true}}}}, "", "  ")
	return append(b, '\n'), err
}

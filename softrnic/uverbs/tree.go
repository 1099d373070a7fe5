package uverbs

import (
	"fmt"
	"strconv"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// EnvTree is the environment variable that makes libibverbs look for devices in another folder
// instead of /sys.
const EnvTree = "SYSFS_PATH"

// EnvMemory is the environment variable that makes the preloaded library share registered memory
// with the daemon, if its value is SharedMemory.
const (
	EnvMemory    = "RDMALAB_VERBS_MEMORY"
	SharedMemory = "shared"
)

// DeviceName is the name of the NIC for programs. The rxe provider accepts only names that begin
// with "rxe".
const DeviceName = "rxe0"

// Versions of three interfaces: of the commands, of the rings of the rxe driver, and of the
// commands of the connection manager.
const (
	commandVersion = "6"
	ringVersion    = "2"
	managerVersion = "4"
)

// Tree returns the files that programs find under /sys for a NIC on the interface ifname, as a map
// from path to content.
func Tree(d verbs.DeviceAttr, ifname string) map[string]string {
	gid := verbs.LinkLocalGID(d.MAC)
	guid := groups(gid[8:])
	dev := "class/infiniband/" + DeviceName + "/"
	port := dev + "ports/1/"
	state := PortOf(&d)
	t := map[string]string{
		"class/infiniband_verbs/abi_version":         commandVersion,
		"class/infiniband_verbs/uverbs0/ibdev":       DeviceName,
		"class/infiniband_verbs/uverbs0/dev":         "1:3", // the number of /dev/null; no program opens it as a device
		"class/infiniband_verbs/uverbs0/abi_version": ringVersion,
		"class/misc/rdma_cm/abi_version":             managerVersion,
		dev + "node_type":                            "1: CA",
		dev + "node_guid":                            guid,
		dev + "sys_image_guid":                       guid,
		dev + "node_desc":                            d.Name,
		dev + "fw_ver":                               "1.0",
		port + "state":                               state.Text,
		port + "phys_state":                          state.PhysicalText,
		port + "link_layer":                          "Ethernet",
		port + "rate":                                "25 Gb/sec (1X EDR)",
		port + "cap_mask":                            "0x04010000",
		port + "lid":                                 "0x0",
		port + "lid_mask_count":                      "0",
		port + "sm_lid":                              "0x0",
		port + "sm_sl":                               "0",
		dev + "device/net/" + ifname + "/address":    d.MAC.String(),
	}
	for i, k := range d.PKeys {
		t[port+"pkeys/"+strconv.Itoa(i)] = fmt.Sprintf("0x%04x", k)
	}
	for i, g := range d.GIDs {
		n := strconv.Itoa(i)
		t[port+"gids/"+n] = groups(g[:])
		t[port+"gid_attrs/types/"+n] = "RoCE v2"
		if !g.IsZero() {
			t[port+"gid_attrs/ndevs/"+n] = ifname
		}
	}
	free := strconv.Itoa(len(d.GIDs)) // the first index without an address: libibverbs takes its all-zero GID for a free entry, but reads the type before the GID
	t[port+"gids/"+free], t[port+"gid_attrs/types/"+free] = groups(make([]byte, len(verbs.GID{}))), "RoCE v2"
	return t
}

// PortStatus is the state of a port, in the numbers of ibv_query_port and the texts of sysfs.
type PortStatus struct {
	Logical, Physical  uint8
	Text, PhysicalText string
}

// PortOf returns the state of the port of a NIC.
func PortOf(d *verbs.DeviceAttr) PortStatus {
	switch {
	case d.PortDisabled:
		return PortStatus{1, 3, "1: DOWN", "3: Disabled"}
	case d.PortDown:
		return PortStatus{1, 2, "1: DOWN", "2: Polling"}
	}
	return PortStatus{4, 5, "4: ACTIVE", "5: LinkUp"}
}

// groups formats a GID or a GUID as sysfs does.
func groups(b []byte) (s string) {
	for i := 0; i < len(b); i += 2 {
		if i > 0 {
			s += ":"
		}
		s += fmt.Sprintf("%02x%02x", b[i], b[i+1])
	}
	return s
}

package uverbs

import (
	"fmt"
	"strconv"
	"strings"

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

// EnvDrivers is the environment variable by which libibverbs loads further providers, before those of
// the system: paths of libraries without their suffix, separated by colons.
const EnvDrivers = "RDMAV_DRIVERS"

// EnvProvider is the environment variable that chooses the provider that serves the NIC to libibverbs
// programs: ProviderOwn, the one of folder provider, which is the default, or ProviderRXE, the one of
// rdma-core for the kernel's rxe driver.
const (
	EnvProvider = "RDMALAB_PROVIDER"
	ProviderOwn = "own"
	ProviderRXE = "rxe"
)

// Place says as which device programs find a NIC of a host.
type Place struct {
	// Device is its name. The rxe provider accepts only names that begin with "rxe".
	Device string
	// Nth counts the NICs of the host from 0. Programs open /dev/infiniband/uverbs with this number.
	Nth    int
	Ifname string // the NIC's interface
	NUMA   *int   // the number of its NUMA node; nil if it is not told
}

// The folders of the NIC's two devices. The folders of classes have links to them.
func (p *Place) verbs() string {
	return "devices/virtual/infiniband_verbs/uverbs" + strconv.Itoa(p.Nth) + "/"
}
func (p *Place) device() string { return "devices/virtual/infiniband/" + p.Device + "/" }

// Own reports whether a file or link of the tree belongs to the NIC and to no other one of the host. What
// all NICs have in common belongs to the first one.
func (p *Place) Own(file string) bool {
	if _, ok := Links(*p)[file]; ok || strings.HasPrefix(file, p.device()) || strings.HasPrefix(file, p.verbs()) {
		return true
	}
	for _, dir := range []string{"devices/virtual/infiniband/", "devices/virtual/infiniband_verbs/", "class/infiniband/", "class/infiniband_verbs/uverbs"} {
		if strings.HasPrefix(file, dir) {
			return false
		}
	}
	return p.Nth == 0
}

// Links returns the symbolic links that programs find under /sys for a NIC, as a map from path to target.
func Links(at Place) map[string]string {
	uverbs := "uverbs" + strconv.Itoa(at.Nth)
	return map[string]string{
		"class/infiniband/" + at.Device:                   "../../devices/virtual/infiniband/" + at.Device,
		"class/infiniband_verbs/" + uverbs:                "../../devices/virtual/infiniband_verbs/" + uverbs,
		at.device() + "subsystem":                         "../../../../class/infiniband",
		at.verbs() + "subsystem":                          "../../../../class/infiniband_verbs",
		at.verbs() + "device":                             "../../infiniband/" + at.Device + "/device",
		at.device() + "device/infiniband/" + at.Device:    "../../../" + at.Device,
		at.device() + "device/infiniband_verbs/" + uverbs: "../../../../infiniband_verbs/" + uverbs,
	}
}

// Firmware is the version of the firmware that programs see. RingVersion is the version of the rings of the
// rxe driver.
const (
	Firmware    = "1.0"
	RingVersion = 2
)

// Capabilities that programs see of each NIC (enum ibv_device_cap_flags): BAD_PKEY_CNTR, BAD_QKEY_CNTR,
// PORT_ACTIVE_EVENT, SYS_IMAGE_GUID, RC_RNR_NAK_GEN, N_NOTIFY_CQ, MEM_WINDOW, MEM_WINDOW_TYPE_2B.
// CapabilitiesEx are further ones, in the 64-bit field: for reliable connections, FLUSH to global
// visibility and ATOMIC_WRITE. FLUSH to persistence is missing, because no memory here is persistent.
const (
	Capabilities   = 1<<1 | 1<<2 | 1<<10 | 1<<11 | 1<<12 | 1<<14 | 1<<17 | 1<<24
	CapabilitiesEx = 1<<38 | 1<<40
)

// Versions of two interfaces: of the commands, and of the commands of the connection manager.
const (
	commandVersion = "6"
	managerVersion = "4"
)

// Tree returns the files that programs find under /sys for a NIC, as a map from path to content. For a
// NIC behind the first one of its host, the files that all have in common are left out.
func Tree(d verbs.DeviceAttr, at Place) map[string]string {
	gid := verbs.LinkLocalGID(d.MAC)
	guid := groups(gid[8:])
	dev, ifname := at.device(), at.Ifname
	port := dev + "ports/1/"
	state := PortOf(&d)
	t := map[string]string{
		"class/infiniband_verbs/abi_version":      commandVersion,
		at.verbs() + "ibdev":                      at.Device,
		at.verbs() + "dev":                        "1:3", // the number of /dev/null; no program opens it as a device
		at.verbs() + "abi_version":                strconv.Itoa(RingVersion),
		"class/misc/rdma_cm/abi_version":          managerVersion,
		dev + "node_type":                         "1: CA",
		dev + "node_guid":                         guid,
		dev + "sys_image_guid":                    guid,
		dev + "node_desc":                         d.Name,
		dev + "fw_ver":                            Firmware,
		dev + "hw_rev":                            "0x0",
		dev + "hca_type":                          "Soft-RoCE",
		dev + "board_id":                          "rdmalab", // node_exporter takes no device without
		dev + "parent":                            ifname,
		port + "state":                            state.Text,
		port + "phys_state":                       state.PhysicalText,
		port + "link_layer":                       "Ethernet",
		port + "rate":                             "25 Gb/sec (1X EDR)",
		port + "cap_mask":                         "0x04010000",
		port + "lid":                              "0x0",
		port + "lid_mask_count":                   "0",
		port + "sm_lid":                           "0x0",
		port + "sm_sl":                            "0",
		dev + "device/net/" + ifname + "/address": d.MAC.String(),
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
	if at.NUMA != nil {
		t[dev+"device/numa_node"] = strconv.Itoa(*at.NUMA)
	}
	for file := range t {
		if !at.Own(file) {
			delete(t, file)
		}
	}
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

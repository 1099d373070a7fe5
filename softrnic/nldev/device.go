package nldev

// Values that are the same for all devices here.
const (
	nodeTypeCA    = 1
	ports         = 1
	protocolRoCE  = "roce"
	netnsShared   = 1        // a device is seen in all namespaces: in a host's, which has its devices alone
	chardevNumber = 1<<8 | 3 // 1:3 as the kernel encodes it (huge_encode_dev); see uverbs.Tree
	chardevUverbs = "uverbs"
	chardevCM     = "rdma_cm"
	cmABI         = 4
)

// handle begins each answer about a device.
func (m *message) handle(d *Device) {
	m.u32(attrDevIndex, d.Index)
	m.text(attrDevName, d.Name)
}

func (m *message) device(d *Device) {
	m.handle(d)
	m.u32(attrPortIndex, ports)
	m.u64(attrCapFlags, d.Caps)
	m.text(attrFirmware, d.Firmware)
	m.u64(attrNodeGUID, d.NodeGUID)
	m.u64(attrSysImageGUID, d.ImageGUID)
	m.u8(attrNodeType, nodeTypeCA)
	m.u8(attrDIM, 0)
	m.text(attrProtocol, protocolRoCE)
}

func (m *message) port(d *Device) {
	m.handle(d)
	m.u32(attrPortIndex, ports)
	m.u8(attrPortState, d.Port.State)
	m.u8(attrPortPhysState, d.Port.Physical)
	if d.Port.Ifname != "" {
		m.u32(attrNdevIndex, d.Port.Ifindex)
		m.text(attrNdevName, d.Port.Ifname)
	}
}

func (a *query) getDevice(m *message) error {
	d, err := a.named()
	if err == nil {
		m.device(d)
	}
	return err
}

func (a *query) dumpDevices() error {
	for _, d := range a.s.Devices() {
		m := a.begin(flagMulti)
		m.device(&d)
		a.answer(m.end())
	}
	return nil
}

func (a *query) getPort(m *message) error {
	d, err := a.named()
	if err == nil {
		err = a.port1(true)
	}
	if err == nil {
		m.port(d)
	}
	return err
}

func (a *query) dumpPorts() error {
	d, err := a.named()
	if err != nil {
		return err
	}
	m := a.begin(flagMulti)
	m.port(d)
	a.answer(m.end())
	return nil
}

// getSystem says what is true for all devices. Copy on fork means that a fork changes nothing for
// registered memory of the parent, so that libibverbs need not keep it from the child: the NIC finds
// memory by the process, not by its pages.
func (*query) getSystem(m *message) error {
	m.u8(attrNetnsMode, netnsShared)
	m.u8(attrCopyOnFork, 1)
	return nil
}

// getChardev tells libibverbs and librdmacm the character device below them. The number of the driver,
// which the kernel adds for libibverbs, is left out: by it libibverbs would take the provider of rxe also
// where the program has chosen another one.
func (a *query) getChardev(m *message) error {
	kind := a.at.text(attrChardevType)
	if _, ok := a.at.u32(attrDevIndex); !ok {
		if kind != chardevCM || len(a.s.Devices()) == 0 {
			return noDevice
		}
		m.chardev(chardevCM, cmABI)
		return nil
	}
	d, err := a.named()
	if err != nil {
		return err
	}
	if kind != chardevUverbs {
		return noDevice
	}
	m.chardev(d.Chardev, d.ChardevABI)
	return nil
}

func (m *message) chardev(name string, abi uint64) {
	m.u64(attrChardev, chardevNumber)
	m.u64(attrChardevABI, abi)
	m.text(attrChardevName, name)
}

package verbs

// MW is a memory window of type 2: a key that gives the peer of one queue pair access to a part of
// a region.
//
// To bind a window, post OpBindMW: the SGL is one SGE of a region that was registered with MWBind,
// RKey is the window's new key, which is NextRKey of the last one, and BindAccess has the peer's
// rights. Peers name the window by that key and by addresses of the region. OpLocalInv, or a peer's
// OpSendInv, with this key unbinds the window. Only after that it can be bound again. A bind that
// fails completes with MWBindErr. A bind waits for all earlier work requests of its queue pair, and
// all later ones wait for it.
type MW interface {
	// RKey returns the key of the last bind.
	RKey() (uint32, error)
	Dealloc() error
}

// NextRKey returns the key that a window gets by its next bind, or a region by its next fast
// registration. The low byte of a key belongs to the application. The rest names the window or
// region (ibv_inc_rkey).
func NextRKey(key uint32) uint32 { return key&^0xff | uint32(uint8(key)+1) }

// LKeyWith returns the L_Key of a region that OpRegMR has registered with rkey. lkey is an earlier
// L_Key of the region.
func LKeyWith(lkey, rkey uint32) uint32 { return lkey&^0xff | rkey&0xff }

// DM is device memory. Peers and work requests reach it through regions; see PD.RegDM.
type DM interface {
	Len() int
	// ReadAt and WriteAt copy bytes out of and into the device memory. The copies are ordered with the
	// NIC's own accesses.
	ReadAt(p []byte, off int) error
	WriteAt(p []byte, off int) error
	// Free returns the memory to the NIC. It fails with ErrBusy while the memory has regions.
	Free() error
}

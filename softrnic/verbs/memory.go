package verbs

// MW is a memory window of type 2: a key for the peer of one queue pair over a piece of a region.
//
// To bind it, post OpBindMW: the SGL is one piece of a region that was registered with MWBind, RKey
// is the window's new key, NextRKey of its last, and BindAccess the peer's rights. Peers name the
// window by that key and by addresses of the region. OpLocalInv, or a peer's OpSendInv, with the
// key ends that; only then it can be bound again. A bind that does not work completes with
// MWBindErr. Binding waits for all earlier work requests of its queue pair, and all later ones wait
// for it.
type MW interface {
	// RKey is the key of the last bind.
	RKey() (uint32, error)
	Dealloc() error
}

// NextRKey is the key that a window of key gets by its next bind, or memory by its next fast
// registration: its low byte belongs to the application, the rest names the window or the memory
// (ibv_inc_rkey).
func NextRKey(key uint32) uint32 { return key&^0xff | uint32(uint8(key)+1) }

// LKeyWith is the L_Key of memory that was registered by OpRegMR with rkey. lkey is an L_Key that
// the memory had.
func LKeyWith(lkey, rkey uint32) uint32 { return lkey&^0xff | rkey&0xff }

// DM is memory on the NIC. Peers and work requests reach it through regions: see PD.RegDM.
type DM interface {
	Len() int
	// ReadAt and WriteAt copy out of and into it at an offset, ordered with the NIC's own accesses.
	ReadAt(p []byte, off int) error
	WriteAt(p []byte, off int) error
	// Free fails with ErrBusy while regions of it are left.
	Free() error
}

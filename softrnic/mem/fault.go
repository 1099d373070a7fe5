package mem

// Fault says why memory may not be accessed. It is a value, not an error, because peers cause it:
// the transport converts it to a NAK or a completion status.
type Fault uint8

// Faults, in the order in which they are checked (IBTA 10.6.3/order).
const (
	// OK is no fault.
	OK Fault = iota
	// BadKey: no region has this key, or it was invalidated.
	BadKey
	// BadPD: the region is in another protection domain than the queue pair.
	BadPD
	// BadAccess: the region was registered without the right that is needed.
	BadAccess
	// BadBounds: the range is not inside the region.
	BadBounds
	// BadPage: the memory belongs to another process (Far), which has unmapped it.
	BadPage
)

var faultNames = [...]string{"ok", "unknown or invalidated key", "other protection domain", "no access right", "out of bounds", "no memory"}

func (f Fault) String() string {
	if int(f) < len(faultNames) {
		return faultNames[f]
	}
	return "unknown fault"
}

package fusee

// Leaked returns how many objects this client may have leaked: objects of its operations with an
// unknown outcome, and frees that were perhaps not executed. An object of an operation is reused
// when the outcome is known. An object whose free was lost is reused when the owner of its block
// has found it by a sweep.
func (c *Client) Leaked() uint64 { return uint64(len(c.space.unsure)) + c.space.lost }

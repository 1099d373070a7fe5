package nictable

// Version returns the version of the last item that an answer had.
func (c *Client) Version() uint32 { return c.version }

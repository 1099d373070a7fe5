// Package ladder turns the packets of a capture into the rows of a ladder diagram: lifelines of hosts
// and of the switch, and an arrow for each packet. A Model takes packets; Rows makes the rows, and
// WriteText, WriteSVG and WriteHTML draw them. The package has no clock and opens no file.
package ladder

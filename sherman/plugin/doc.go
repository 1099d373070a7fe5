// Package plugin registers the store Sherman: its part in the daemon of a host, which makes the
// host a compute node of a tree, and its commands.
package plugin

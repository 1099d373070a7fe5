// Package image makes a virtual machine out of Debian packages: a stock kernel, an initramfs with
// the soft-RoCE driver, the verbs libraries and the tools that people use with them. Packages are
// fetched with apt into a cache folder and unpacked from there; nothing is installed, and nothing
// of the machine itself goes into the image.
package image

//! Attributes, ACLs, inline data, the orphan file and multiple-mount protection, as the kernel and the
//! reference tools write and read them. Needs root and loop devices.

mod acl;
mod image;
mod inline;
mod mmp;
mod orphan;
mod xattr;
